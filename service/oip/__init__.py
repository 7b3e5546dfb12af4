"""The Open Inference Protocol over HTTP: health, metadata, repository index and infer."""
