package call

import (
	"encoding/json"
	"slices"
	"sync"
	"weak"

	"go.uber.org/zap"

	"github.com/weir-mcp/weir/dataplane/internal/headers"
	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/wire"
)

// table is what is compiled of one index, once.
type table struct {
	index    weak.Pointer[routes.Index]
	backends map[routes.BackendID]*backendPlan
	problems []string

	capabilities       json.RawMessage // as published
	legacyCapabilities json.RawMessage // of the same, what a legacy client can use
	taskCapabilities   json.RawMessage // that and tasks as 2025-11-25 knows them; nil: no backend has such
}

// backendPlan is what is compiled of one backend.
type backendPlan struct {
	headers *headers.Plan
	params  map[string]*wire.ParamSpec // by upstream tool name; nil entries ask for nothing
}

func (t *table) backend(id routes.BackendID) *backendPlan { return t.backends[id] }

// tables keeps the newest table of each host. It does not keep an index alive: a host that was removed costs a small table.
type tables struct {
	log          *zap.Logger
	hasReference func(string) bool

	mu     sync.RWMutex // guards byHost
	byHost map[routes.HostID]*table
}

func newTables(log *zap.Logger, hasReference func(string) bool) *tables {
	return &tables{log: log, hasReference: hasReference, byHost: map[routes.HostID]*table{}}
}

// of returns the table of an index. Two requests may compile the same one; a request that is still on an older index gets
// its own.
func (ts *tables) of(ix *routes.Index) *table {
	host := ix.Host().ID
	ts.mu.RLock()
	last := ts.byHost[host]
	ts.mu.RUnlock()
	if last != nil && last.index.Value() == ix {
		return last
	}
	t := ts.compile(ix)
	if last == nil || !slices.Equal(last.problems, t.problems) {
		for _, p := range t.problems {
			ts.log.Warn("published header is not sent as configured", zap.String("host", string(host)), zap.String("problem", p))
		}
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if now := ts.byHost[host]; now == last { // else a newer one may stand there
		ts.byHost[host] = t
	}
	return t
}

func (ts *tables) compile(ix *routes.Index) *table {
	vh := ix.Host()
	t := &table{index: weak.Make(ix), backends: make(map[routes.BackendID]*backendPlan, len(vh.Backends))}
	for id, b := range vh.Backends {
		plan, problems := headers.Compile(&b, ts.hasReference)
		for _, p := range problems {
			t.problems = append(t.problems, string(id)+": "+p.Field+" "+p.Header+": "+p.Reason)
		}
		bp := &backendPlan{headers: plan}
		for tool, schema := range b.ToolSchemas {
			spec, err := wire.ParseParamSpec(schema)
			switch {
			case err != nil: // the control plane leaves such tools out; a client could not satisfy the schema
				t.problems = append(t.problems, string(id)+": tool "+tool+": "+err.Error())
			case spec != nil:
				if bp.params == nil {
					bp.params = map[string]*wire.ParamSpec{}
				}
				bp.params[tool] = spec
			}
		}
		t.backends[id] = bp
	}
	slices.Sort(t.problems)
	t.capabilities, t.legacyCapabilities = capabilitiesOf(vh)
	if vh.OffersLegacyTasks() {
		if legacy, err := wire.ParseObject(t.legacyCapabilities); err == nil { // made here
			t.taskCapabilities = legacy.With("tasks", legacyTasks).Append(nil)
		}
	}
	return t
}
