"""Kernels of the engine: one contract, a reference, and implementations for CPU and GPU."""
