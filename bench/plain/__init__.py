"""A language model and its decode loop in plain torch: the engine core without a framework."""
