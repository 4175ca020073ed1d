"""The vLLM plugin: attention backend, worker and KV connector on vLLM's extension points."""
