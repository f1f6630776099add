// Package call answers checked requests: it routes one to exactly one backend, or answers it from the snapshot, or hands it
// to the control plane (the table of methods in DESIGN § 7). Read handler.go first.
package call
