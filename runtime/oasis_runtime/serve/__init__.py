"""``python -m oasis_runtime serve``: checks the machine, then becomes vLLM's OpenAI server."""
