// Package tasks remembers which backend holds a task and for whom: in the store, in memory while the store is away, and by asking the
// control plane for what nobody recorded (DESIGN § 8). book.go is the way of a record; queue.go is what becomes of it while the store is
// away; locate.go asks.
package tasks
