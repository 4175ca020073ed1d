//go:build tools

// Package kwok pins the programs that the test bed builds from this module.
package kwok

import (
	_ "sigs.k8s.io/kwok/cmd/kwok"
)
