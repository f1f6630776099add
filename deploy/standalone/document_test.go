package standalone

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSplitDocumentKeepsLineNumbers(t *testing.T) {
	for name, tt := range map[string]struct {
		file, control, data string
	}{
		"a block in the middle": {
			file:    "backends:\n  a: {url: x}\ndataplane:\n  limits:\n    body: 1MiB\n  secrets: {}\nvirtual_hosts: {}\n",
			control: "backends:\n  a: {url: x}\n\n\n\n\nvirtual_hosts: {}\n",
			data:    "\n\n\nlimits:\n  body: 1MiB\nsecrets: {}\n\n",
		},
		"a block at the end, indented by four": {
			file:    "backends: {}\ndataplane:\n    log_level: debug\n",
			control: "backends: {}\n\n\n",
			data:    "\n\nlog_level: debug\n",
		},
		"in one line": {
			file:    "dataplane: {log_level: debug, listen: 1, limits: {body: 1KiB}}\nbackends: {}\n",
			control: "\nbackends: {}\n",
			data:    "log_level: debug\nlimits: {body: 1KiB}\n\n",
		},
		"in one line, empty": {
			file:    "dataplane: {}\nbackends: {}\n",
			control: "\nbackends: {}\n",
			data:    "\n\n",
		},
		"what standalone decides itself is left out of both": {
			file:    "redis:\n  url: redis://elsewhere\nlisten: :80\nbackends: {}\ndataplane:\n  redis: redis://elsewhere\n  log_level: warn\n  listen: :81\n",
			control: "\n\n\nbackends: {}\n\n\n\n\n",
			data:    "\n\n\n\n\n\nlog_level: warn\n\n",
		},
		"an empty block": {
			file:    "dataplane:\nbackends: {}\n",
			control: "\nbackends: {}\n",
			data:    "\n\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := splitDocument([]byte(tt.file))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.control, strings.TrimSuffix(string(d.controlDoc()), "\n")); diff != "" {
				t.Errorf("control plane's part (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.data, strings.TrimSuffix(string(d.dataDoc()), "\n")); diff != "" {
				t.Errorf("dataplane's part (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSplitDocumentRefusesWhatIsNoMapping(t *testing.T) {
	for name, file := range map[string]string{
		"a list": "- a\n", "flow style": "{backends: {}}\n", "a scalar": "hello\n", "broken": "a: [\n",
	} {
		if _, err := splitDocument([]byte(file)); err == nil || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%s: error %v, want one that names a line", name, err)
		}
	}
}

func TestAddedKeysParse(t *testing.T) {
	for name, block := range map[string]string{"block style": "dataplane:\n  drain: {delay: 1s}\n", "flow style": "dataplane: {drain: {delay: 1s}}\n"} {
		t.Run(name, func(t *testing.T) { addedKeysParse(t, "auth:\n  issuers: [{issuer: a}]\n"+block) })
	}
}

func addedKeysParse(t *testing.T, file string) {
	d, err := splitDocument([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{d.addControl("listen", "127.0.0.1:1"), d.addData("drain", "ignored"), d.addData("auth", d.controlKeys["auth"])} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var control, data map[string]any
	if err := yaml.Unmarshal(d.controlDoc(), &control); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(d.dataDoc(), &data); err != nil {
		t.Fatal(err)
	}
	auth := map[string]any{"issuers": []any{map[string]any{"issuer": "a"}}}
	if diff := cmp.Diff(map[string]any{"auth": auth, "listen": "127.0.0.1:1"}, control); diff != "" {
		t.Errorf("control (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]any{"auth": auth, "drain": map[string]any{"delay": "1s"}}, data); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
}

// Whatever the file, what the two parts say together is what it said.
func FuzzSplitDocument(f *testing.F) {
	for _, seed := range []string{
		"a: 1\ndataplane:\n  b: 2\n  c:\n    - d\nz: |\n  text\n", "dataplane: {a: [1,\n  2]}\nb: x\n", "# c\ndataplane:\n  # d\n  a: |\n    x\n   \nq: 1\n", "a: &x 1\nb: *x\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, file string) {
		var whole map[string]any
		if yaml.Unmarshal([]byte(file), &whole) != nil || strings.ContainsAny(file, "&*\t") {
			return // no document, or one whose parts refer to each other
		}
		d, err := splitDocument([]byte(file))
		if err != nil {
			return
		}
		var control map[string]any
		if err := yaml.Unmarshal(d.controlDoc(), &control); err != nil {
			t.Skip("a style that the parts can't keep, which the planes' loaders report")
		}
		for k := range control {
			if _, ok := whole[k]; !ok {
				t.Errorf("the control plane's part invents %q", k)
			}
		}
	})
}
