// Package egress makes one call to one backend, and says what became of it.
//
// There are two ways upstream, chosen by the version that discovery negotiated (docs/decisions/0005-two-ways-upstream.md):
//
//   - relay.go, for modern backends (MCP 2026-07-28 and later): one POST, whose answer is one JSON document or one event
//     stream. It is carried by net/http's Transport and never decoded beyond the JSON-RPC envelope.
//   - legacy.go, for older ones: the SDK's streamable client transport at message level, fresh per call: initialize,
//     notifications/initialized, the call, and DELETE of the session in the background. Large responses do not go through
//     the SDK's hands (setaside.go).
//
// session.go is discovery's way to make several requests to one backend whose era is not known yet.
//
// Below both lies exchange.go: one HTTP request with its deadlines and with the knowledge of whether a byte of it may have
// left. Only a request of which nothing was written is ever sent again; see Failure.Sent. transport.go pools TCP and TLS
// connections by backend, never an MCP session; dial.go refuses addresses that no backend may have. Large messages lie in memory
// that is used again (docs/decisions/0007-memory-is-used-again.md): outgoing.go sends them from there.
package egress
