// Package listing answers what the control plane answers to clients: who a virtual host is (initialize, server/discover), what it
// lists, what changes (subscriptions/listen), and, by asking the backends that know, completion/complete and a legacy tasks/list.
//
// A [Store] follows what is published and keeps one immutable view a host: its table, its lists, and the definitions out of
// the catalogs of its backends. It works the same on every replica, leading or not, and a view stays while the store is away.
// A [Server] answers from the views. A definition is the backend's bytes; only the value of its name is replaced.
package listing
