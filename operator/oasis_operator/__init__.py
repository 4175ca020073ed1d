"""OasisKV operator: turns OasisDeployment resources into serving pods."""
