package tasks

import "crypto/rand"

// The classes of letters that a decoy keeps: a backend may look at an id's form before it looks for the task, and refuse a wrong one
// sooner than it finds that there is none.
var classes = [...]string{"0123456789", "abcdef", "ghijklmnopqrstuvwxyz", "ABCDEF", "GHIJKLMNOPQRSTUVWXYZ"}

func classOf(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return 0
	case c >= 'a' && c <= 'f':
		return 1
	case c >= 'g' && c <= 'z':
		return 2
	case c >= 'A' && c <= 'F':
		return 3
	case c >= 'G' && c <= 'Z':
		return 4
	}
	return -1
}

// decoyOf makes what a backend is asked for in place of an id that it holds for somebody else: another id of the same length and form, at random: each letter and digit is replaced by one of its class, anything
// else stays. An id without any becomes one of letters.
func decoyOf(id string) string {
	for {
		out, random := []byte(id), make([]byte, len(id))
		rand.Read(random) // never fails
		changed := false
		for i, c := range out {
			if class := classOf(c); class >= 0 {
				out[i] = pick(classes[class], random[i])
				changed = true
			}
		}
		if !changed {
			for i := range out {
				out[i] = pick(classes[2], random[i])
			}
		}
		if decoy := string(out); decoy != id {
			return decoy
		}
	}
}

// pick is not quite even, which does not matter here.
func pick(from string, at byte) byte { return from[int(at)%len(from)] }
