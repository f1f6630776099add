package listing

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"

	"github.com/weir-mcp/weir/routes"
)

// A cursor says where the next page of one list of one host at one revision begins. To a client it is opaque; it grants
// nothing, since scopes are checked on every page, so that a digest suffices to tell a torn or foreign one.
//
//	base64url( epoch uvarint | revision uvarint | offset uvarint | first 8 bytes of SHA-256 )
//
// The digest is over the host, the kind, the incarnation and the numbers.
const cursorDigest = 8

// maxCursor bounds what is decoded; an own cursor is at most 3 × 10 + 8 bytes, 51 in base64.
const maxCursor = 64

// cursorFor makes the cursor of the entry at offset.
func cursorFor(host routes.HostID, kind routes.Kind, v routes.Version, offset int) string {
	b := binary.AppendUvarint(nil, v.Epoch)
	b = binary.AppendUvarint(b, v.Revision)
	b = binary.AppendUvarint(b, uint64(offset))
	b = append(b, digestOf(host, kind, v.Incarnation, b)...)
	return base64.RawURLEncoding.EncodeToString(b)
}

// openCursor finds the view that a cursor belongs to, v or an older one of the same host, and the offset in it; false: it is
// torn, foreign, or from a revision that is gone.
func openCursor(v *view, kind routes.Kind, cursor string) (of *view, offset int, ok bool) {
	if len(cursor) > maxCursor {
		return nil, 0, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(b) <= cursorDigest {
		return nil, 0, false
	}
	numbers, digest := b[:len(b)-cursorDigest], b[len(b)-cursorDigest:]
	var n [3]uint64 // epoch, revision, offset
	rest := numbers
	for i := range n {
		value, size := binary.Uvarint(rest)
		if size <= 0 {
			return nil, 0, false
		}
		n[i], rest = value, rest[size:]
	}
	for ; v != nil; v = v.older {
		if v.version.Epoch != n[0] || v.version.Revision != n[1] {
			continue
		}
		if subtle.ConstantTimeCompare(digest, digestOf(v.doc.ID, kind, v.version.Incarnation, numbers)) != 1 {
			continue
		}
		if len(rest) > 0 || n[2] > uint64(len(v.kinds[kind].entries)) {
			return nil, 0, false
		}
		return v, int(n[2]), true
	}
	return nil, 0, false
}

func digestOf(host routes.HostID, kind routes.Kind, incarnation string, numbers []byte) []byte {
	sum := sha256.New()
	for _, part := range [][]byte{[]byte("weir list cursor"), []byte(host), {byte(kind)}, []byte(incarnation), numbers} {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		sum.Write(size[:])
		sum.Write(part)
	}
	return sum.Sum(nil)[:cursorDigest]
}
