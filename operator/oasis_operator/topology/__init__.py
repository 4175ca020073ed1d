"""Where on a node an engine's devices, CPUs and memory are: what the cluster has, what a pod asks
for, and whether the two fit."""
