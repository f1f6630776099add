//go:build race

package e2e

// raceEnabled builds the binaries under the race detector when the tests run under it.
const raceEnabled = true
