package httpdoc

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weir-mcp/weir/controlplane/internal/source"
	"github.com/weir-mcp/weir/routes"
)

func TestDecode(t *testing.T) {
	for name, tt := range map[string]struct {
		doc  string
		want []source.Entry
		err  string
	}{
		"a whole entry": {
			doc: ` [{"name":"files","url":"https://files.example/mcp","prefix":"f.","timeouts":{"connect":"1s","response":"30s","idle":"1m","total":"1h"}}] `,
			want: []source.Entry{{Name: "files", URL: "https://files.example/mcp", Prefix: "f.", Timeouts: routes.Timeouts{
				Connect: time.Second, Response: 30 * time.Second, Idle: time.Minute, Total: time.Hour}}},
		},
		"no backends":                     {doc: `[]`, want: []source.Entry{}},
		"an entry without a name":         {doc: `[{"url":"https://x.example"}]`, want: []source.Entry{{URL: "https://x.example", Origin: "entry 0"}}},
		"nothing":                         {doc: ``, err: "not JSON"},
		"null":                            {doc: `null`, err: "the document is null"},
		"a web page":                      {doc: `<html>`, err: "not JSON at byte 0"},
		"cut short":                       {doc: `[{"name":"a","url":"https://a.example"},`, err: "not JSON"},
		"something after the list":        {doc: `[] []`, err: "not JSON"},
		"an object":                       {doc: `{"backends":[]}`, err: `not what belongs there`},
		"a list of names":                 {doc: `["a"]`, err: `"/0"`},
		"an unknown member":               {doc: `[{"name":"a","url":"https://a.example","header":{"X":"y"}}]`, err: "unknown member at /0/header"},
		"a member in another case":        {doc: `[{"Name":"a"}]`, err: "unknown member at /0/Name"},
		"a member twice":                  {doc: `[{"name":"a","name":"b"}]`, err: "duplicate"},
		"a name that is a number":         {doc: `[{"name":1}]`, err: `"/0/name"`},
		"a timeout that is a number":      {doc: `[{"name":"a","timeouts":{"total":5}}]`, err: "/0/timeouts/total"},
		"a timeout without a unit":        {doc: `[{"name":"a","timeouts":{"total":"5"}}]`, err: "not a duration"},
		"text that is not UTF-8":          {doc: "[{\"name\":\"a\xff\"}]", err: "UTF-8"},
		"more entries than one may have":  {doc: "[" + strings.Repeat("{},", source.MaxEntries) + "{}]", err: "at most 10000"},
		"a secret in what is refused":     {doc: `[{"url":{"hunter2":1}}]`, err: "/0/url"},
		"nested deeper than anybody does": {doc: strings.Repeat("[", 100_000), err: "not"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Decode([]byte(tt.doc))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "hunter2") {
					t.Errorf("error %v, want one with %q", err, tt.err)
				}
				return
			}
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateErrors()); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// What is taken means the same when it is written down again, and has the bounds that it should have.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`[]`, `null`, `[{"name":"a","url":"https://a.example/mcp"}]`, `[{"name":"a","url":"u","timeouts":{"total":"1h2m"}}]`,
		`[{"name":"a","name":"b"}]`, `[{"name":"\ud800"}]`, `{"a":1}`, `[null,{}]`, "[{\"name\":\"\xff\"}]", `[] `, `[{"timeouts":{"idle":"-1s"}}]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		entries, err := Decode(doc)
		if err != nil {
			if entries != nil {
				t.Fatal("entries beside an error")
			}
			return
		}
		if entries == nil || len(entries) > source.MaxEntries {
			t.Fatalf("%d entries", len(entries))
		}
		again := make([]map[string]any, len(entries))
		for i, e := range entries {
			again[i] = map[string]any{"name": e.Name, "url": e.URL, "prefix": e.Prefix, "timeouts": map[string]string{
				"connect": e.Timeouts.Connect.String(), "response": e.Timeouts.Response.String(),
				"idle": e.Timeouts.Idle.String(), "total": e.Timeouts.Total.String(),
			}}
		}
		encoded, err := json.Marshal(again)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(encoded)
		if err != nil {
			t.Fatalf("%s: %v", encoded, err)
		}
		if diff := cmp.Diff(entries, got, cmpopts.EquateErrors()); diff != "" {
			t.Errorf("(-first +again):\n%s", diff)
		}
	})
}
