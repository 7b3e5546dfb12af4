"""What runs in each peer's own virtual environment; see `serving.servers` for how it is started."""
