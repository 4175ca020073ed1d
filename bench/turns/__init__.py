"""vLLM engines in processes of their own that decode in turns, and how their caches are filled."""
