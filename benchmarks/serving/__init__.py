"""Benchmarks of the service: see docs/benchmarks.md."""
