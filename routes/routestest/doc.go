// Package routestest helps to test whatever reads or writes published documents: an in-memory [Memory] with the methods of
// redisstore's Reader and Writer, usable inside testing/synctest; builders for documents; servers to test on (miniredis, a real
// redis-server, a cluster of three); and [Contract], the suite that every store runs.
package routestest
