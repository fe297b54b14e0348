"""Measurements against the original, naive OpenMP and the machine's limits: ``python -m benchmarks``."""
