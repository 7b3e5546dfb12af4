"""The peers. Each file runs in the peer's own virtual environment; see serving/roster.py."""
