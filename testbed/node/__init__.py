"""The node bed: all of a one-node cluster inside private mount, network and process namespaces.

Nothing in there has a route out, and nothing of it outlives the namespaces' first process.
"""
