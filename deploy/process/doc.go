// Package process is what each of Weir's binaries does around its plane: strict config files, a logger, listeners that
// reload their certificates, the ops listener, and the order of start and stop.
//
// Nothing in it knows a plane. What starts a goroutine here also waits for it.
package process
