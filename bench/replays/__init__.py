"""Recorded queries of a real model, replayed over the engine's own tables and kernels."""
