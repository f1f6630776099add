// Package tasks finds the backend that holds a task which nobody recorded: read-only, within a budget, and so that another
// principal's id can't be told from one that nobody has.
//
// locate.go is the order of the steps; read it first. probe.go asks one backend, for a decoy (decoy.go) where it holds the id for
// another principal. budget.go, negative.go and places.go bound what a principal may cause.
// Source: DESIGN § 8; docs/decisions/0071-foreign-and-unknown-ids-alike.md.
package tasks
