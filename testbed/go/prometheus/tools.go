//go:build tools

// Package prometheus pins the programs that the test bed builds from this module.
package prometheus

import (
	_ "github.com/prometheus/prometheus/cmd/prometheus"
	_ "github.com/prometheus/prometheus/cmd/promtool"
)
