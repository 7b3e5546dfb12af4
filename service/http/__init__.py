"""Parts that all routes share: middleware, API keys, encodings, streams, problems and OpenAPI."""
