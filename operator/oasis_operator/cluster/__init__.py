"""The side that acts: API server, watches, queue, leader election."""
