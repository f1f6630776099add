// Package routes is the contract between Weir's two planes: the document that the control plane publishes for each
// virtual host, how it is validated, encoded and looked up, and what a store of such documents promises.
//
// It is a leaf: it knows no network, no Redis and no clock. Everything in it is a value, or immutable after it was built.
package routes
