package wire

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestScanTask(t *testing.T) {
	for name, tt := range map[string]struct {
		result string
		want   TaskScan
	}{
		"a modern task":                      {`{"resultType":"task","taskId":"t","status":"working","ttlMs":60000}`, TaskScan{ModernTask, "t", "working", time.Minute, false}},
		"a modern task without end":          {`{"resultType":"task","taskId":"t","ttlMs":null}`, TaskScan{ModernTask, "t", "", 0, true}},
		"a modern task of an unsaid ttl":     {`{"taskId":"t","resultType":"task"}`, TaskScan{ModernTask, "t", "", 0, false}},
		"a legacy name of the ttl says none": {`{"resultType":"task","taskId":"t","ttl":5}`, TaskScan{ModernTask, "t", "", 0, false}},
		"a legacy task":                      {`{"task":{"taskId":"t","status":"working","ttl":1000},"_meta":{}}`, TaskScan{LegacyTask, "t", "working", time.Second, false}},
		"a legacy task without end":          {`{"task":{"ttl":null,"taskId":"t"}}`, TaskScan{LegacyTask, "t", "", 0, true}},
		"an advertised task":                 {`{"content":[],"_meta":{"task":{"taskId":"t","ttlMs":1500}}}`, TaskScan{AdvertisedTask, "t", "", 1500 * time.Millisecond, false}},
		"an advertised task, complete":       {`{"resultType":"complete","content":[],"_meta":{"task":{"taskId":"t"}}}`, TaskScan{AdvertisedTask, "t", "", 0, false}},
		"escapes":                            {`{"result\u0054ype":"t\u0061sk","task\u0049d":"\u0074"}`, TaskScan{ModernTask, "t", "", 0, false}},
		"an advertisement without an id":     {`{"content":[],"_meta":{"task":{}}}`, TaskScan{}},
		"an advertisement that is a string":  {`{"content":[],"_meta":{"task":"t"}}`, TaskScan{}},
		"a tool's own task beside content":   {`{"content":[],"task":{"taskId":"t"}}`, TaskScan{}},
		"a complete result's own task":       {`{"resultType":"complete","task":{"taskId":"t"}}`, TaskScan{}},
		"input that is required":             {`{"resultType":"input_required","taskId":"t"}`, TaskScan{}},
		"a task that is no object":           {`{"task":"t"}`, TaskScan{}},
		"a task further down":                {`{"structuredContent":{"resultType":"task","taskId":"t"},"content":[]}`, TaskScan{}},
		"a ttl that is no number":            {`{"resultType":"task","taskId":"t","ttlMs":"60000"}`, TaskScan{ModernTask, "t", "", 0, false}},
		"a ttl below nothing":                {`{"resultType":"task","taskId":"t","ttlMs":-5}`, TaskScan{ModernTask, "t", "", 0, false}},
		"a ttl with a fraction":              {`{"resultType":"task","taskId":"t","ttlMs":1.5}`, TaskScan{ModernTask, "t", "", 1500 * time.Microsecond, false}},
		"a ttl beyond every clock":           {`{"resultType":"task","taskId":"t","ttlMs":1e300}`, TaskScan{ModernTask, "t", "", math.MaxInt64, false}},
		"a ttl beyond every number":          {`{"resultType":"task","taskId":"t","ttlMs":1e999}`, TaskScan{ModernTask, "t", "", math.MaxInt64, false}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ScanTask(json.RawMessage(tt.result))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("scan (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMalformedTasksAreErrors(t *testing.T) {
	for name, result := range map[string]string{
		"an id of no text":    `{"resultType":"task","taskId":"\ud800x"}`,
		"no id":               `{"resultType":"task","status":"working"}`,
		"an id of no letters": `{"resultType":"task","taskId":""}`,
		"an id of a number":   `{"resultType":"task","taskId":5}`,
		"two ids":             `{"resultType":"task","taskId":"a","taskId":"b"}`,
		"two ttls":            `{"resultType":"task","taskId":"a","ttlMs":1,"ttlMs":2}`,
		"an escaped second":   `{"resultType":"task","taskId":"a","task\u0049d":"b"}`,
		"two result types":    `{"resultType":"complete","resultType":"task","taskId":"a"}`,
		"a legacy one's":      `{"task":{"status":"working"}}`,
		"an endless id":       `{"resultType":"task","taskId":"` + strings.Repeat("x", maxTaskID+1) + `"}`,
		"broken JSON":         `{"resultType":"task","taskId":"a"`,
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := ScanTask(json.RawMessage(result)); err == nil {
				t.Errorf("no error: %+v", got)
			}
		})
	}
}

func TestScanTaskState(t *testing.T) {
	const both = `{"taskId":"t","status":"completed","ttlMs":1000,"ttl":2000,"result":{"taskId":"u"}}`
	for era, want := range map[Era]time.Duration{Modern: time.Second, Legacy: 2 * time.Second} {
		got, err := ScanTaskState(era, json.RawMessage(both))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(TaskScan{ID: "t", Status: "completed", TTL: want}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", era, diff)
		}
	}
	for _, bad := range []string{``, `null`, `[]`, `{}`, `{"taskId":"t"`, `{"taskId":1}`} {
		if got, err := ScanTaskState(Modern, json.RawMessage(bad)); err == nil {
			t.Errorf("%q: no error: %+v", bad, got)
		}
	}
}

// A scan finds a task only where a decoder that knows nothing of tasks finds the same id.
func FuzzScanTask(f *testing.F) {
	f.Add(`{"resultType":"task","taskId":"t","ttlMs":60000}`)
	f.Add(`{"task":{"taskId":"t","ttl":null}}`)
	f.Add(`{"_meta":{"task":{"taskId":"\u0074"}},"content":[]}`)
	f.Add(`{"resultType":"task","taskId":"a","taskId":"b"}`)
	f.Fuzz(func(t *testing.T, result string) {
		got, err := ScanTask(json.RawMessage(result))
		if err != nil {
			return
		}
		var doc map[string]json.RawMessage
		if json.Unmarshal([]byte(result), &doc) != nil {
			t.Fatalf("%q was taken for a result", result)
		}
		at := doc
		switch got.Shape {
		case NoTask:
			return
		case LegacyTask:
			at = member(t, doc, "task")
		case AdvertisedTask:
			at = member(t, member(t, doc, "_meta"), "task")
		}
		var id string
		if json.Unmarshal(at["taskId"], &id) != nil || id != strings.ToValidUTF8(got.ID, "\uFFFD") || got.TTL < 0 {
			t.Fatalf("%q has the task %+v, and a decoder finds %q", result, got, id)
		}
	})
}

func member(t *testing.T, doc map[string]json.RawMessage, name string) (out map[string]json.RawMessage) {
	if err := json.Unmarshal(doc[name], &out); err != nil {
		t.Fatalf("%s of %s: %v", name, doc, err)
	}
	return out
}

func TestDeclaresTasks(t *testing.T) {
	for meta, want := range map[string]bool{
		`{"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`:   true,
		`{"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":null}}}`: false,
		`{"io.modelcontextprotocol/clientCapabilities":{"extensions":{}}}`:                                     false,
		`{"io.modelcontextprotocol/clientCapabilities":{"tasks":{"requests":{}}}}`:                             false,
		`{"io.modelcontextprotocol/clientCapabilities":[]}`:                                                    false,
		`{}`: false,
	} {
		m, err := ParseObject([]byte(meta))
		if err != nil {
			t.Fatal(err)
		}
		r := &Request{Message: &Message{Meta: m}, Era: Modern}
		if got := r.DeclaresTasks(); got != want {
			t.Errorf("%s: %v, want %v", meta, got, want)
		}
		if r.Era = Legacy; r.DeclaresTasks() {
			t.Errorf("%s: a legacy client has no extensions", meta)
		}
	}
}

func TestUnknownTask(t *testing.T) {
	for name, tt := range map[string]struct {
		era          Era
		notFound     int
		code, status int
	}{
		"modern":                             {Modern, 0, -32602, 400},
		"modern, older convention":           {Modern, -32002, -32602, 400},
		"legacy":                             {Legacy, 0, -32602, 200},
		"legacy, as the host says":           {Legacy, -32602, -32602, 200},
		"legacy, of the older convention":    {Legacy, -32002, -32002, 200},
		"legacy, a policy that no one knows": {Legacy, 7, -32602, 200},
	} {
		e := UnknownTask(tt.era, tt.notFound)
		if e.Code != tt.code || e.HTTPStatus(tt.era) != tt.status || e.Data != nil || e.Message != "task not found" {
			t.Errorf("%s: %+v", name, e)
		}
	}
}
