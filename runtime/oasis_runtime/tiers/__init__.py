"""The tiers that hold KV, and what the machine says about them. Import the submodule you need."""
