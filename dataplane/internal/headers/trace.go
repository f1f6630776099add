package headers

import (
	"encoding/hex"
	"strings"
)

const (
	traceParent = "Traceparent"
	traceState  = "Tracestate"
)

// maxTraceState is what W3C Trace Context § 3.3.1.5 asks to propagate at least; a longer one is dropped whole.
const maxTraceState = 512

// trace continues the caller's trace under a new span: the same trace id and flags. Without a valid traceparent there is no
// trace, and none is invented. Source: W3C Trace Context, Level 2.
func (c callerHeader) trace(spanID func() [8]byte) (parent, state string) {
	values := c.values(traceParent)
	if len(values) != 1 || spanID == nil {
		return "", ""
	}
	traceID, flags, ok := parseTraceParent(values[0])
	if !ok {
		return "", ""
	}
	id := spanID()
	if id == [8]byte{} {
		id[7] = 1 // all zero is no id
	}
	parent = "00-" + traceID + "-" + hex.EncodeToString(id[:]) + "-" + hex.EncodeToString([]byte{flags})
	state = strings.Join(c.values(traceState), ",")
	if len(state) > maxTraceState {
		state = ""
	}
	return parent, state
}

// parseTraceParent accepts version 00, and of later ones the part that 00 defines.
func parseTraceParent(s string) (traceID string, flags byte, ok bool) {
	s = strings.TrimSpace(s)
	if len(s) < 55 || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return "", 0, false
	}
	version, traceID, parent, flagText := s[:2], s[3:35], s[36:52], s[53:55]
	switch {
	case !lowerHex(version) || version == "ff":
		return "", 0, false
	case version == "00" && len(s) != 55, len(s) > 55 && s[55] != '-':
		return "", 0, false
	case !lowerHex(traceID) || strings.Trim(traceID, "0") == "":
		return "", 0, false
	case !lowerHex(parent) || strings.Trim(parent, "0") == "" || !lowerHex(flagText):
		return "", 0, false
	}
	b, err := hex.DecodeString(flagText)
	if err != nil {
		return "", 0, false
	}
	return traceID, b[0] & 0x03, true // sampled and random; what version 00 does not define is not ours to set
}

func lowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
