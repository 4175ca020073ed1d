"""How many prefill and decode pods: pure functions from what was measured to one decision."""
