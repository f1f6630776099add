// Package publish makes what stands in the store follow what config and discovery say.
//
// Every replica runs a [Controller]. One of them at a time holds the leader's lease; it compiles when something changed and
// writes what differs from what stands. The others compile too, for their problems, and write nothing.
//
//	changed → quiet for a moment → compile (pure) → compare with what stands → catalogs, hosts, removals → complete
//
// What stands is read from the store when the lease is taken, not remembered from an earlier term: it is the Previous of the
// compiler, so that names stay with whoever holds them.
package publish
