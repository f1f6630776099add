package routes

import "testing"

func TestProtectedHeader(t *testing.T) {
	for name, want := range map[string]bool{
		"Host": true, "content_length": true, "TE": true, "X-Forwarded-For": true, "x_forwarded_anything": true, "Mcp-Name": true,
		"MCP_PARAM_X": true, "Cookie": true, "HTTP2-Settings": true, "Proxy_Authorization": true,
		"Authorization": false, "X-Request-Id": false, "X-Forwarded": false, "Mcp": false, "Traceparent": false, "": false,
	} {
		if got := ProtectedHeader(name); got != want {
			t.Errorf("ProtectedHeader(%q) = %v, want %v", name, got, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { ProtectedHeader("Mcp_Session-Id") }); n != 0 {
		t.Errorf("ProtectedHeader: %v allocations, want 0", n)
	}
	for name, want := range map[string]bool{"Traceparent": true, "TRACE_STATE": false, "tracestate": true, "trace-parent": false} {
		if got := TraceHeader(name); got != want {
			t.Errorf("TraceHeader(%q) = %v, want %v", name, got, want)
		}
	}
}
