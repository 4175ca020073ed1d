"""A fleet of prefill and decode pods under a recorded load, simulated event by event."""
