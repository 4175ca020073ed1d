"""Prometheus of the node bed: a process inside, found by pods through a Service."""
