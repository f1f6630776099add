package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/weir-mcp/weir/controlplane/internal/catalog"
	"github.com/weir-mcp/weir/routes/egress"
	"github.com/weir-mcp/weir/routes/wire"
)

// list is one of a backend's lists.
type list struct {
	kind       catalog.Kind
	method     string
	capability string // walked only where this is declared
}

var lists = [...]list{
	{catalog.Tools, "tools/list", "tools"},
	{catalog.Prompts, "prompts/list", "prompts"},
	{catalog.Resources, "resources/list", "resources"},
	{catalog.ResourceTemplates, "resources/templates/list", "resources"},
}

// failedWalk is why a list was given up that the backend answered for.
type failedWalk struct {
	reason string // short; published
	err    error
}

func (f *failedWalk) Error() string { return f.err.Error() }
func (f *failedWalk) Unwrap() error { return f.err }

func broken(reason, format string, args ...any) error {
	return &failedWalk{reason, fmt.Errorf(format, args...)}
}

// walker walks all pages of one list.
// Source: MCP 2026-07-28, server/utilities/pagination and server/utilities/caching.
type walker struct {
	session *egress.Session
	list    list
	limits  Limits
	bytes   *atomic.Int64 // of all lists of the round
	legacy  bool

	first json.RawMessage // the first page
}

// walk returns the list, complete, or why it failed: then Failed says so too.
func (w *walker) walk(ctx context.Context) (catalog.Result, error) {
	raws, ttl, err := w.pages(ctx)
	if err != nil {
		return catalog.Result{Failed: reasonOf(err)}, err
	}
	return catalog.Result{Items: catalog.Items(w.list.kind, raws, check(w.list.kind)), TTL: ttl}, nil
}

func (w *walker) pages(ctx context.Context) (raws []json.RawMessage, ttl *int64, err error) {
	seen := map[string]bool{} // cursors
	var params wire.Object
	for n := 1; ; n++ {
		if n > w.limits.Pages {
			return nil, nil, broken("too many pages", "over %d pages", w.limits.Pages)
		}
		page, err := w.session.Call(ctx, w.list.method, params)
		if err != nil {
			re, ok := errors.AsType[*egress.RPCError](err)
			if ok && re.Code == wire.CodeMethodNotFound && w.list.kind == catalog.ResourceTemplates && n == 1 {
				return nil, nil, nil // resources without templates: nothing declares them apart
			}
			return nil, nil, fmt.Errorf("page %d: %w", n, err)
		}
		if w.bytes.Add(int64(len(page))) > w.limits.Bytes {
			return nil, nil, broken("too large", "page %d: the lists have over %d bytes", n, w.limits.Bytes)
		}
		items, next, err := pageOf(w.list.kind, page, w.legacy)
		if err != nil {
			return nil, nil, fmt.Errorf("page %d: %w", n, err)
		}
		if n == 1 {
			w.first = page
		}
		if raws = append(raws, items...); len(raws) > w.limits.Items {
			return nil, nil, broken("too many items", "page %d: over %d items", n, w.limits.Items)
		}
		ttl = shorter(ttl, ttlOf(page), n == 1)
		if next == nil {
			return raws, ttl, nil
		}
		if seen[*next] {
			return nil, nil, broken("cursor loop", "page %d: its cursor led to an earlier page already", n)
		}
		seen[*next] = true
		params = wire.Object{{Name: "cursor", Value: wire.Quote(*next)}}
	}
}

// pageOf splits a page into its items, byte for byte, and the next cursor: nil at the end. An empty cursor is one like any other
// for modern backends; legacy SDKs on both sides take it for the end.
func pageOf(k catalog.Kind, page json.RawMessage, legacy bool) (items []json.RawMessage, next *string, err error) {
	// Not strictly: one item with a duplicate key deep inside is that item's fault alone.
	var members map[string]json.RawMessage
	if json.Unmarshal(page, &members) != nil || members == nil {
		return nil, nil, broken("bad_response", "the result is no object")
	}
	if rt, ok := members["resultType"]; ok && string(rt) != `"complete"` {
		return nil, nil, broken("bad_response", "the result is of another type than complete")
	}
	raw, ok := members[k.String()]
	if !ok || json.Unmarshal(raw, &items) != nil || items == nil {
		return nil, nil, broken("bad_response", "the result has no array %q", k.String())
	}
	if raw, ok := members["nextCursor"]; ok && json.Unmarshal(raw, &next) != nil {
		return nil, nil, broken("bad_response", "nextCursor is no string")
	}
	if next != nil && *next == "" && legacy {
		next = nil
	}
	return items, next, nil
}

// ttlOf is a page's ttlMs in milliseconds; nil when it says nothing usable. A negative one means 0.
func ttlOf(page json.RawMessage) *int64 {
	var said struct {
		TTL *int64 `json:"ttlMs"`
	}
	if json.Unmarshal(page, &said) != nil || said.TTL == nil {
		return nil
	}
	return new(max(*said.TTL, 0))
}

// shorter is the ttlMs of a list so far and one more page; a page that says nothing is stale at once, unless none says anything.
func shorter(list, page *int64, first bool) *int64 {
	switch {
	case first, list == nil && page == nil:
		return page
	case list == nil || page == nil:
		return new(int64(0))
	}
	return new(min(*list, *page))
}

// check looks at an item with the strictness that a client's message meets: what Weir's own decoder refuses can't be served.
func check(k catalog.Kind) catalog.Check {
	return func(raw, inputSchema json.RawMessage) (reject string, annotated bool) {
		if _, err := wire.ParseObject(raw); err != nil {
			return "not clean JSON: " + err.Error(), false
		}
		if k != catalog.Tools {
			return "", false
		}
		spec, err := wire.ParseParamSpec(inputSchema)
		if err != nil {
			return "x-mcp-header: " + err.Error(), false
		}
		return "", spec != nil
	}
}
