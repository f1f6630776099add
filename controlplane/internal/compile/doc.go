// Package compile turns what the operator wrote and what discovery found into what is published: one routing table and one
// list per virtual host, and the problems met on the way.
//
// It is pure: values in, values out; no network, clock, logger or map order has a say in it. A user's mistake is a Problem in
// the output and never stops the rest.
package compile
