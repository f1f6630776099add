// Package dataplane is Weir's data plane: a stateless router that checks a token, looks a name up in an immutable table and
// forwards one call to one backend. Any dataplane can answer any request; none holds a session.
//
// LoadConfig reads its file, New wires it, Run serves until its context ends.
package dataplane
