// Package snapshot keeps the routing tables that this dataplane serves from: one immutable index per virtual host, loaded
// when first asked for and replaced when the control plane publishes a newer one.
//
// What it promises (DESIGN § 5): a warm host is never waited for and survives the store's absence; a document that can't be
// used leaves the last good one in place; only a tombstone removes a host; whatever the order in which reads end, what is
// served is never older than what was served, within an incarnation.
package snapshot
