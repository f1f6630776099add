package wire

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// RequestFor translates a client's request for a backend that speaks backendVersion, and returns the params to send: the
// name that the backend knows a tool or prompt by is put in, for completion/complete into its ref (URIs and task ids are never
// rewritten), and _meta is brought to the backend's era. Everything else stays byte for byte.
//
//	modern → modern: as sent; a version that the backend did not negotiate is replaced
//	modern → legacy: what 2026-07-28 put into _meta is dropped, progressToken and foreign members stay
//	legacy → modern: version, clientInfo (see [Request.ClientInfo]) and empty clientCapabilities are added
//	legacy → legacy: as sent
func RequestFor(r *Request, backendVersion, upstream string) (Object, *Error) {
	params := r.Params
	if field := nameField(r.Method); field == "name" {
		if name, ok := params.Text(field); ok && name != upstream {
			params = params.With(field, Quote(upstream))
		}
	} else if r.Method == "completion/complete" {
		params = withReference(params, upstream)
	}
	modern := EraOf(backendVersion) == Modern
	switch {
	case r.Era == Modern && !modern:
		if r.Meta == nil {
			break
		}
		meta := r.Meta.Without(MetaProtocolVersion, MetaClientInfo, MetaClientCapabilities, MetaLogLevel, MetaSubscriptionID)
		switch {
		case len(meta) == len(r.Meta):
		case len(meta) == 0:
			params = params.Without("_meta")
		default:
			params = params.With("_meta", meta.Append(nil))
		}
	case r.Era == Legacy && modern:
		meta := r.Meta.With(MetaProtocolVersion, Quote(backendVersion))
		if info, ok := meta.Get(MetaClientInfo); !ok || !isObject(info) {
			meta = meta.With(MetaClientInfo, r.clientInfo())
		}
		meta = meta.With(MetaClientCapabilities, json.RawMessage("{}"))
		params = params.With("_meta", meta.Append(nil))
	case modern:
		if version, _ := r.Meta.Text(MetaProtocolVersion); version != backendVersion {
			params = params.With("_meta", r.Meta.With(MetaProtocolVersion, Quote(backendVersion)).Append(nil))
		}
	}
	return params, nil
}

// ResultFor translates a backend's raw result, which is known to be JSON, for the client's era, everything else byte for byte. A
// modern client gets resultType from a legacy backend too, and ttlMs and cacheScope where the schema wants them. What the
// client's era can't carry (input_required, a task) is an error with reason needs_modern_client or needs_legacy_client; a
// structuredContent that is no object is left out for a legacy client.
// Source: MCP 2026-07-28, basic/index (ResultType), server/utilities/caching.
func ResultFor(client Era, backendVersion, method string, result json.RawMessage) (json.RawMessage, *Error) {
	parts, err := ResultParts(client, backendVersion, method, result)
	if len(parts) == 1 {
		return parts[0], err
	}
	return bytes.Join(parts, nil), err
}

// ResultParts is [ResultFor] without a copy: the translated result is what it returns, one after another. Where nothing changes
// that is the result itself.
func ResultParts(client Era, backendVersion, method string, result json.RawMessage) ([][]byte, *Error) {
	backend := EraOf(backendVersion)
	if client == backend {
		return [][]byte{result}, nil
	}
	sc := scanner{walker: trust(result)}
	if sc.space(); sc.peek() != '{' {
		return nil, Internal(ReasonBadResponse, "")
	}
	sc.result()
	if sc.problem != "" {
		return nil, Internal(ReasonBadResponse, "")
	}
	scan := &sc.s.ResultScan
	if client == Legacy {
		if scan.ResultType != "" && scan.ResultType != "complete" {
			return nil, Internal(ReasonNeedsModernClient, "")
		}
		if method == "tools/call" {
			result = objectContent(result)
		}
		return [][]byte{result}, nil
	}
	if method == "tools/call" && isObject(scan.Task) && !scan.content {
		return nil, Internal(ReasonNeedsLegacyClient, "")
	}
	return completeResult(result, method, scan.ResultType == "")
}

// objectContent leaves out of a tool's result a structuredContent that is no object: the schema of 2025-11-25 knows none, and strict
// clients would refuse the whole answer. The backend was asked to say the same in content (decision 42).
// Source: MCP 2026-07-28, server/tools (Structured Content).
func objectContent(result json.RawMessage) json.RawMessage {
	if !bytes.Contains(result, []byte(`"structuredContent"`)) {
		return result
	}
	have := objectOf(result)
	if raw, ok := have.Get("structuredContent"); !ok || isObject(raw) {
		return result
	}
	return have.Without("structuredContent").Append(nil)
}

// completeResult adds what a modern result must have and this one lacks.
func completeResult(result json.RawMessage, method string, resultType bool) ([][]byte, *Error) {
	var add []byte
	if resultType {
		add = append(add, `,"resultType":"complete"`...)
	}
	if cacheable(method) {
		w := trust(result)
		w.space()
		have := w.object()
		if _, ok := have.Get("ttlMs"); !ok {
			add = append(add, `,"ttlMs":0`...)
		}
		if _, ok := have.Get("cacheScope"); !ok {
			add = append(add, `,"cacheScope":"private"`...)
		}
	}
	if len(add) == 0 {
		return [][]byte{result}, nil
	}
	body, ok := bytes.CutSuffix(bytes.TrimRight(result, " \t\r\n"), []byte{'}'})
	if !ok {
		return nil, Internal(ReasonBadResponse, "") // it was no JSON
	}
	if inner := bytes.TrimRight(body, " \t\r\n"); inner[len(inner)-1] == '{' {
		add = add[1:] // the object was empty: no comma
	}
	return [][]byte{body, append(add, '}')}, nil
}

// cacheable reports whether a method's result is a CacheableResult of the 2026-07-28 schema.
func cacheable(method string) bool {
	switch method {
	case "server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read":
		return true
	}
	return false
}

// ErrorFor translates a backend's JSON-RPC error object for the client's era: a modern client must not see -32002 and -32042,
// which become -32602 and -32603. Everything else stays byte for byte. An error object without an integer code and a
// message is an error with reason bad_response.
// Source: MCP 2026-07-28, basic/index (Error Codes).
func ErrorFor(client Era, backendErr json.RawMessage) (json.RawMessage, *Error) {
	w := trust(backendErr)
	if w.space(); w.peek() != '{' {
		return nil, Internal(ReasonBadResponse, "")
	}
	var code json.RawMessage
	var from, to, codes int
	var message bool
	for w.enter(); ; {
		name, ok := w.member()
		if !ok {
			break
		}
		switch start := w.i; unquote(name) {
		case "code":
			code = w.value()
			from, to = start, w.i
			codes++
		case "message":
			_, message = text(w.value())
		default:
			w.value()
		}
	}
	n, ok := integer(string(code))
	if !ok || !message || codes != 1 {
		return nil, Internal(ReasonBadResponse, "")
	}
	replaced := int(n)
	if client == Modern {
		replaced = modernCode(int(n))
	}
	if replaced == int(n) {
		return backendErr, nil
	}
	out := append(make([]byte, 0, len(backendErr)), backendErr[:from]...)
	return append(strconv.AppendInt(out, int64(replaced), 10), backendErr[to:]...), nil
}

// modernCode replaces the codes that the 2026-07-28 text forbids to emit.
func modernCode(code int) int {
	switch code {
	case CodeResourceNotFoundLegacy:
		return CodeInvalidParams
	case CodeURLElicitationLegacy:
		return CodeInternal
	}
	return code
}
