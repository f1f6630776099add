//go:build !linux

package routestest

import "syscall"

// dieWithParent can't be had here: a server outlives a test that is killed.
func dieWithParent() *syscall.SysProcAttr { return nil }
