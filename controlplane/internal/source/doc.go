// Package source takes backends from elsewhere than the config file, behind one interface: an HTTP document (package httpdoc),
// Services of a Kubernetes cluster (package kubernetes).
//
// A Source looks and reports; a Watcher runs each, keeps the last good set of its backends, and says what is wrong with it. A
// report that failed takes nothing away: only a complete good one does. Merge, a pure function, then makes one config out of
// the file and the sets, so that whatever compiles, discovers and publishes needs to know of no source.
//
// What a source says is not the operator's own word. It gives names, URLs and time limits, never headers, files or secret
// references; its backends are marked Discovered, so that private addresses are refused unless the operator allows them for
// the source; and it never takes the place of a backend of the file.
package source
