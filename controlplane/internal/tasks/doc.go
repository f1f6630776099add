// Package tasks finds the backend that holds a task which nobody recorded: read-only, within a budget, and so that another
// principal's id can't be told from one that nobody has.
//
// locate.go is the order of the steps; read it first. probe.go asks one backend. samples.go and decoy.go stand in for the question that
// another principal's backend must not be asked. budget.go and negative.go bound what a principal may cause.
// Source: DESIGN § 8; docs/decisions/0071-foreign-and-unknown-ids-alike.md.
package tasks
