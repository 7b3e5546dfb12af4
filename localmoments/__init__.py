"""The pure centre: NumPy and the standard library only, shared by the service and the trainer."""
