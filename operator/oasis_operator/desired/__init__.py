"""Pure builders: typed spec -> manifests, one kind of object a file."""
