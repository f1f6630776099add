package tasks

import (
	"crypto/rand"
	"hash/maphash"
)

// The classes of letters that a decoy keeps: a backend may look at an id's form before it looks for the task, and refuse a wrong one
// sooner.
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

// decoyOf returns another id of the same length and form, at random: each letter and digit is replaced by one of its class, anything
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

// shape stands for an id's form: its length, which classes of letters it has, and whatever else stands where. Decoys of an id have its
// shape, and so have other ids from the same source.
type shape uint64

func (p *peers) shapeOf(id string) shape {
	form := make([]byte, len(id)+1)
	for i := range len(id) {
		class := classOf(id[i])
		if class < 0 {
			form[i+1] = id[i]
			continue
		}
		form[0] |= 1 << class
		form[i+1] = 'x'
	}
	return shape(maphash.Bytes(p.seed, form))
}
