"""How fast the service is beside its peers, over the same graph and load: see run.py."""
