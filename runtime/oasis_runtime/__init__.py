"""OasisKV engine: sparse decode over a tiered KV cache. Import the submodule you need."""
