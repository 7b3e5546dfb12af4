"""Open Inference Protocol: models, their graphs and their chains for clients of other servers."""
