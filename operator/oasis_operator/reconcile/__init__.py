"""Observe, plan, and judge: pure functions between what is and what should be."""
