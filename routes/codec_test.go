package routes_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
)

// fullHost sets every field of a document; TestGoldenHostIsWhole keeps it so.
func fullHost() *routes.VirtualHost {
	return &routes.VirtualHost{
		Schema: routes.SchemaVersion, ID: "acme", Incarnation: "5f3a9c", Epoch: 7, Revision: 1 << 60,
		Order: []routes.BackendID{"github", "files"},
		Backends: map[routes.BackendID]routes.Backend{
			"github": {
				URL: "https://mcp.github.example/mcp?x=1&y=<2>", Protocol: "2026-07-28",
				Capabilities:       routes.BackendCapabilities{Tasks: true, Completions: true, Subscribe: true, Logging: true},
				PassthroughHeaders: []string{"X-Request-Id"},
				AddHeaders:         map[string]routes.SecretRef{"Authorization": "Bearer ${env:GITHUB_TOKEN}", "X-Team": "platform"},
				RemoveHeaders:      []string{"X-Internal"},
				ForwardCaller:      map[string]string{"Authorization": "X-GitHub-Token"},
				ResourceAllow:      []string{"repo://*"},
				ResourceDeny:       []string{"repo://secret/*"},
				ToolSchemas: map[string]json.RawMessage{
					"create_pr": json.RawMessage(`{"type":"object","z":1.0,"a":1e+2,"big":9007199254740993,"esc":"\u003c\/é\ud83d\ude00"}`),
				},
				Timeouts: routes.Timeouts{Connect: time.Second, Response: time.Minute, Idle: 5 * time.Minute, Total: time.Hour},
				TLS:      routes.TLS{CAFile: "/etc/ca.pem", CertFile: "/etc/c.pem", KeyFile: "/etc/k.pem", ServerName: "github.example"},
			},
			"files": {
				URL: "http://10.0.0.7:7002/mcp", Protocol: "2025-11-25", Handshake: routes.HandshakeNone,
				StdioLease: "files", Discovered: true, AllowPrivate: true, Source: "registry", SourcePrefix: "f__",
			},
		},
		Tools: map[string]routes.ServiceRoute{
			"gh__create_pr": {Backend: "github", Upstream: "create_pr"},
			"read <&> file": {Backend: "files", Upstream: "read <&> file"},
		},
		Prompts:           map[string]routes.ServiceRoute{"review": {Backend: "github", Upstream: "review"}},
		Resources:         map[string]routes.ServiceRoute{"file:///README": {Backend: "files", Upstream: "file:///README"}},
		ResourceTemplates: map[string]routes.ServiceRoute{"repo://{owner}/{repo}": {Backend: "github", Upstream: "repo://{owner}/{repo}"}},
		ResourcePrefixes:  map[string]routes.ServiceRoute{"file:///data/": {Backend: "files", Upstream: "file:///data/"}},
		Tasks:             routes.TaskPolicy{Unrecorded: "probe", NotFound: -32002},
		Plugins: []routes.PluginRef{{
			Name: "no-secrets", Kind: "secrets", Hooks: []string{"tool_post"}, Mode: "enforce", Priority: 10,
			Timeout: 50 * time.Millisecond, OnError: "deny",
			When:     routes.PluginCondition{Hosts: []string{"acme"}, Tools: []string{"gh__*"}},
			Settings: json.RawMessage(`{"action":"redact"}`),
		}},
		Capabilities: json.RawMessage(`{"tools":{},"resources":{}}`),
		ServerInfo:   json.RawMessage(`{"name":"weir","version":"0"}`),
		Instructions: "Tools of two backends.\nRead first.",
	}
}

func fullList() *routes.HostList {
	entry := func(name string) []routes.ListEntry {
		return []routes.ListEntry{{Name: name, Backend: "github", Upstream: name, Digest: routes.Digest([]byte(name))}}
	}
	return &routes.HostList{
		Tools: entry("gh__create_pr"), Prompts: entry("review"),
		Resources: entry("file:///README"), ResourceTemplates: entry("repo://{owner}/{repo}"),
		Missing: []routes.BackendID{"files"},
	}
}

// golden compares doc with testdata/name, which is the same JSON indented, and returns the file's own bytes.
func golden(t *testing.T, name string, doc []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		v := jsontext.Value(append([]byte(nil), doc...))
		if err := v.Indent(jsontext.WithIndent("  "), jsontext.PreserveRawStrings(true)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(v, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	compact := jsontext.Value(append([]byte(nil), file...))
	if err := compact.Compact(jsontext.PreserveRawStrings(true)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(compact), string(doc)); diff != "" {
		t.Errorf("%s (-golden +got), -update rewrites it:\n%s", path, diff)
	}
	return file
}

// A change of these files is a change of what dataplanes of other releases read. Members may be added; a member that is
// renamed, removed or of another type needs a new SchemaVersion.
func TestGoldenHost(t *testing.T) {
	for name, want := range map[string]*routes.VirtualHost{
		"host-full.json":  fullHost(),
		"host-least.json": {Schema: routes.SchemaVersion, ID: "empty"},
	} {
		t.Run(name, func(t *testing.T) {
			doc, err := routes.EncodeHost(want)
			if err != nil {
				t.Fatal(err)
			}
			file := golden(t, name, doc)
			if err := want.Validate(); err != nil {
				t.Errorf("Validate: %v", err)
			}
			got, err := routes.DecodeHost(doc)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("decoded (-want +got):\n%s", diff)
			}
			if fromFile, err := routes.DecodeHost(file); err != nil {
				t.Errorf("the indented file: %v", err)
			} else if again, err := routes.EncodeHost(fromFile); err != nil || string(again) != string(doc) {
				t.Errorf("the indented file encodes to other bytes (%v):\n%s", err, again)
			}
		})
	}
}

func TestGoldenList(t *testing.T) {
	doc, err := routes.EncodeList(fullList())
	if err != nil {
		t.Fatal(err)
	}
	file := golden(t, "list-full.json", doc)
	got, err := routes.DecodeList(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fullList(), got); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
}

func TestGoldenHostIsWhole(t *testing.T) {
	seen := map[string]bool{}
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		if _, known := seen[path]; !known || !v.IsZero() {
			seen[path] = !v.IsZero()
		}
		switch v.Kind() {
		case reflect.Pointer:
			walk(path, v.Elem())
		case reflect.Struct:
			for i := range v.NumField() {
				walk(path+"."+v.Type().Field(i).Name, v.Field(i))
			}
		case reflect.Map:
			for _, k := range v.MapKeys() {
				walk(path+"[]", v.MapIndex(k))
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(path+"[]", v.Index(i))
			}
		}
	}
	walk("", reflect.ValueOf(fullHost()))
	walk("list", reflect.ValueOf(fullList()))
	for path, set := range seen {
		if !set {
			t.Errorf("%s is set nowhere in the golden document", path)
		}
	}
}

func TestDecodeHostOfANewerWriter(t *testing.T) {
	file, err := os.ReadFile(filepath.Join("testdata", "host-newer-minor.json"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := routes.DecodeHost(file)
	if err != nil {
		t.Fatal(err)
	}
	want := &routes.VirtualHost{
		Schema: 1, ID: "acme",
		Backends: map[routes.BackendID]routes.Backend{"a": {URL: "http://a.example/mcp", Protocol: "2026-07-28"}},
		Tools:    map[string]routes.ServiceRoute{"ping": {Backend: "a", Upstream: "ping"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unknown members were not skipped (-want +got):\n%s", diff)
	}
}

func TestDecodeHostRefusesAnotherSchema(t *testing.T) {
	for name, tt := range map[string]struct {
		file string
		doc  string
		want routes.SchemaError
	}{
		"a later major, with other types everywhere": {file: "host-newer-major.json", want: routes.SchemaError{Host: "acme", Schema: 2}},
		"none at all":    {doc: `{"id":"acme"}`, want: routes.SchemaError{Host: "acme"}},
		"an empty value": {doc: `{}`},
		"the zero one":   {doc: `{"schema":0}`},
	} {
		t.Run(name, func(t *testing.T) {
			doc := []byte(tt.doc)
			if tt.file != "" {
				var err error
				if doc, err = os.ReadFile(filepath.Join("testdata", tt.file)); err != nil {
					t.Fatal(err)
				}
			}
			vh, err := routes.DecodeHost(doc)
			got, ok := errors.AsType[*routes.SchemaError](err)
			if !ok || vh != nil {
				t.Fatalf("DecodeHost: %v, %v; want a *SchemaError", vh, err)
			}
			if *got != tt.want {
				t.Errorf("got %+v, want %+v", *got, tt.want)
			}
		})
	}
}

func TestDecodeHostRefusesWhatIsNoDocument(t *testing.T) {
	for name, tt := range map[string]struct{ doc, want string }{
		"nothing":               {"", "EOF"},
		"torn JSON":             {`{"schema":1,"tools":{"a":`, "unexpected EOF"},
		"an array":              {`[]`, "unmarshal JSON array"},
		"a duplicate member":    {`{"schema":1,"id":"a","id":"b"}`, `duplicate object member name "id"`},
		"a duplicate tool":      {`{"schema":1,"tools":{"a":{},"a":{}}}`, `duplicate object member name "a"`},
		"a duplicate in a raw":  {`{"schema":1,"capabilities":{"x":[{"a":1,"a":2}]}}`, `duplicate object member name "a"`},
		"text after it":         {`{"schema":1} {}`, "invalid character"},
		"a number as a backend": {`{"schema":1,"tools":{"a":{"backend":7}}}`, `"/tools/a/backend"`},
		"what is not UTF-8":     {"{\"schema\":1,\"id\":\"\xff\"}", "UTF-8"},
		"a number as a schema":  {`{"schema":"1"}`, `"/schema"`},
	} {
		t.Run(name, func(t *testing.T) {
			vh, err := routes.DecodeHost([]byte(tt.doc))
			if err == nil || vh != nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "decode host: ") {
				t.Errorf("DecodeHost(%q): %v, %v; want an error with %q", tt.doc, vh, err, tt.want)
			}
			if _, ok := errors.AsType[*routes.SchemaError](err); ok {
				t.Errorf("%v is a *SchemaError", err)
			}
		})
	}
}

func TestEncodeIsDeterministic(t *testing.T) {
	var first []byte
	for range 50 {
		doc, err := routes.EncodeHost(fullHost())
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = doc
		}
		if string(doc) != string(first) {
			t.Fatalf("other bytes:\n%s\n%s", first, doc)
		}
	}
}

func TestRawMembersKeepTheirText(t *testing.T) {
	const sent = "{ \"b\" : 1.0,\n\t\"a\":[ 1E5 , -0, 12345678901234567890 ], \"s\":\"\\u00e9\\/ <&> \\ud83d\\ude00 \u2028\" }"
	const kept = "{\"b\":1.0,\"a\":[1E5,-0,12345678901234567890],\"s\":\"\\u00e9\\/ <&> \\ud83d\\ude00 \u2028\"}"
	doc, err := routes.EncodeHost(&routes.VirtualHost{Schema: 1, ID: "a", ServerInfo: json.RawMessage(sent)})
	if err != nil {
		t.Fatal(err)
	}
	vh, err := routes.DecodeHost(doc)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(kept, string(vh.ServerInfo)); diff != "" {
		t.Errorf("raw member (-want +got):\n%s", diff)
	}
	// A document that somebody else wrote with white space keeps that too.
	if vh, err = routes.DecodeHost([]byte(`{"schema":1,"serverInfo":` + sent + `}`)); err != nil || string(vh.ServerInfo) != sent {
		t.Errorf("decoded %q (%v), want %q", vh.ServerInfo, err, sent)
	}
}

func TestEncodeHostRefuses(t *testing.T) {
	for name, vh := range map[string]*routes.VirtualHost{
		"a raw member that is no JSON":          {ServerInfo: json.RawMessage(`{`)},
		"a duplicate key in a raw member":       {ServerInfo: json.RawMessage(`{"a":{"b":1,"b":2}}`)},
		"a raw member that is not UTF-8":        {ServerInfo: json.RawMessage("{\"a\":\"\xff\"}")},
		"two values in one raw member":          {ServerInfo: json.RawMessage(`{} {}`)},
		"a downstream name that no one can say": {Tools: map[string]routes.ServiceRoute{"\xff": {}}},
	} {
		t.Run(name, func(t *testing.T) {
			if doc, err := routes.EncodeHost(vh); err == nil {
				t.Errorf("encoded to %s, want an error", doc)
			}
		})
	}
}

func TestDecodedHostSharesNothingWithItsBytes(t *testing.T) {
	doc, err := routes.EncodeHost(fullHost())
	if err != nil {
		t.Fatal(err)
	}
	vh, err := routes.DecodeHost(doc)
	if err != nil {
		t.Fatal(err)
	}
	for i := range doc {
		doc[i] = 'x'
	}
	if diff := cmp.Diff(fullHost(), vh); diff != "" {
		t.Errorf("changed with its bytes (-want +got):\n%s", diff)
	}
}

func TestDigest(t *testing.T) {
	seen := map[string]string{}
	for name, parts := range map[string][][]byte{
		"no part":                 {},
		"an empty part":           {{}},
		"two empty parts":         {{}, {}},
		"ab":                      {[]byte("ab")},
		"a, b: the border counts": {[]byte("a"), []byte("b")},
		"b, a: the order counts":  {[]byte("b"), []byte("a")},
		"ab and an empty part":    {[]byte("ab"), {}},
	} {
		d := routes.Digest(parts...)
		if len(d) != 32 || strings.Trim(d, "0123456789abcdef") != "" {
			t.Errorf("%s: %q is not 32 hex digits", name, d)
		}
		if other, ok := seen[d]; ok {
			t.Errorf("%q and %q have the same digest", name, other)
		}
		seen[d] = name
	}
	// Digests stand in Redis: they must not change between releases.
	if got, want := routes.Digest([]byte("weir"), nil), "597082423c2b19309feef0e563ab94af"; got != want {
		t.Errorf("Digest = %q, want %q", got, want)
	}
}

func FuzzDecodeHost(f *testing.F) {
	for _, name := range []string{"host-full.json", "host-least.json", "host-newer-minor.json", "host-newer-major.json"} {
		doc, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(doc)
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		vh, err := routes.DecodeHost(doc)
		if err != nil {
			return
		}
		out, err := routes.EncodeHost(vh)
		if err != nil {
			t.Fatalf("decoded, but: %v", err)
		}
		again, err := routes.DecodeHost(out)
		if err != nil {
			t.Fatalf("encoded to what can't be read: %v", err)
		}
		if second, err := routes.EncodeHost(again); err != nil || string(second) != string(out) {
			t.Errorf("not stable (%v):\n%s\n%s", err, out, second)
		}
		ix, err := routes.NewIndex(vh)
		if err != nil {
			return
		}
		for name := range vh.Tools {
			if _, ok := ix.Lookup(routes.KindTool, name); !ok {
				t.Errorf("tool %q is not found", name)
			}
		}
		ix.Lookup(routes.KindResource, "file:///data/x")
	})
}
