"""A fleet of OasisDeployments on fake nodes, and what its operator asked of the API server."""
