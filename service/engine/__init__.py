"""Models as onnxruntime runs them."""
