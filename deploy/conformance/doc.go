// Conformance runs the official MCP conformance suite against the Go SDK's own fixture (its task scenarios against one of ours),
// directly and through weir-standalone, and prints which scenarios pass directly and not through Weir. See `make conformance` and docs/conformance.md.
//
// It needs node and npm; the suite itself, and Node 22 where this machine's is older (the suite's imports fail on 20), come as
// npm packages into a cache folder of the user.
package main
