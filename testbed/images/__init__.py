"""Images of the test bed: written as archives or built by buildah; no registry, no daemon."""
