// Package routes is the contract between Weir's two planes: the document that the control plane publishes for each virtual
// host, how it is validated, encoded and looked up, and what a store of such documents promises.
//
// It is a leaf: it knows no network, no Redis and no clock. Everything in it is a value, or immutable after it was built.
//
//	control plane:  VirtualHost → Validate → EncodeHost → store
//	dataplane:      store → DecodeHost → NewIndex → Lookup
//
// document.go has the types, validate.go what makes a document usable, codec.go its bytes, index.go the exact look-up,
// unlisted.go the one for URIs that no route names (docs/decisions/0010-unlisted-uris.md), store.go what stores promise.
package routes
