//go:build tools

// Package lws pins the programs that the test bed builds from this module.
package lws

import (
	_ "sigs.k8s.io/lws/cmd"
)
