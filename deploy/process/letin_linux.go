package process

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// handshake is how long a connection that was begun has to be established: some round trips to a front door nearby.
	handshake = 20 * time.Millisecond
	// letInFor bounds the wait for the accept loop.
	letInFor = time.Second
)

// noSYN is a socket filter that drops what opens a connection (SYN without ACK) and lets the rest through. The kernel runs it
// on each packet for the listener, from the TCP header on; the flags are its byte 13.
var noSYN = [...]unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 13},
	{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0x12},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 0x02, Jt: 0, Jf: 1},
	{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
}

// letIn has the kernel ignore new connections to ln and returns when those that were under way have been accepted, by whoever
// accepts on ln. A peer that is ignored asks again after a second, finds the listener closed, and is refused: it knows that it sent
// nothing. Where the kernel refuses the filter, letIn does nothing.
func letIn(ln *net.TCPListener) {
	raw, err := ln.SyscallConn()
	if err != nil {
		return
	}
	filter := noSYN
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	var ferr error
	if err := raw.Control(func(fd uintptr) {
		ferr = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog)
	}); err != nil || ferr != nil {
		return
	}
	for end := time.Now().Add(letInFor); ; {
		time.Sleep(handshake)
		waiting := 0
		if err := raw.Control(func(fd uintptr) {
			waiting, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) // an error leaves 0, or -1
		}); err != nil || waiting <= 0 || time.Now().After(end) {
			return
		}
	}
}
