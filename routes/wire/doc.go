// Package wire is MCP over HTTP as both planes speak it to clients.
//
// One HTTP request carries one JSON-RPC message. An [Endpoint] takes it through the checks in a fixed order, each with one
// answer (docs/errors.md lists them all), and hands what is left to its Dispatch:
//
//	method (405) → MCP header budget (431) → Origin, Host (403) → token (401) → host (404)
//	→ size, media types (413, 415, 406) → strict decode (400) → era, MCP headers, _meta (400) → Dispatch
//
// A message is decoded once, strictly, into members that are sub-slices of the body; what was decoded is what is sent on.
// Two generations of the protocol are served: modern (2026-07-28 and later: every request carries its version in _meta and
// in a header) and legacy (2025-11-25 and earlier). What the generations disagree on is bridged in translate.go.
//
// Dispatch answers through a [Response]: one JSON document, or an event stream that ends with the response. Streams are
// data lines only: no ids, no retry, nothing to resume. A client that closes its connection cancels its request in both
// eras (docs/decisions/0004-cancel-by-closing.md).
//
// The package also has what egress needs of the same wire: [EventReader], [ScanMessage], the header value encoding, and
// [Buffers], the memory of large messages (docs/decisions/0007-memory-is-used-again.md).
//
// Sources: MCP 2026-07-28 basic/transports/streamable-http, basic/versioning, basic/index; MCP 2025-11-25 basic/transports.
package wire
