"""The sparse-KV engine without any serving framework: numpy arrays and kernels only."""
