"""Kernels of the engine: one contract, a reference implementation and a CPU one."""
