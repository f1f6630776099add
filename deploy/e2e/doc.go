// Package e2e drives the built binaries from outside, as an operator and a client would: processes, config files, HTTP and a
// real Redis. It imports no plane's internals.
package e2e
