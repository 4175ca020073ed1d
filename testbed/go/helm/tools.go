//go:build tools

// Package helm pins the programs that the test bed builds from this module.
package helm

import (
	_ "helm.sh/helm/v3/cmd/helm"
)
