package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseReport(t *testing.T) {
	r := parseReport("=== Running scenario: a ===\n\n✓ a-b: 2 passed, 0 failed\n✗ c: 1 passed, 8 failed\n✗ tasks-x: 0 passed, 1 failed\n\nTotal: 3 passed, 9 failed\n\n" +
		"Not scored for 2026-07-28: 1 scenario(s) run, 1 failing. These do not affect conformance.\n  ✗ tasks-x (extension)\n")
	want := map[string]scenario{"a-b": {passed: true, scored: true}, "c": {scored: true}, "tasks-x": {}}
	if diff := cmp.Diff(want, r.scenarios, cmp.AllowUnexported(scenario{})); diff != "" {
		t.Errorf("scenarios (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a-b", "c", "tasks-x"}, r.names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if got := r.score(); got != "1 of 2" {
		t.Errorf("score = %q, want 1 of 2", got)
	}
}

func TestReadKnown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "known.txt")
	write := func(doc string) {
		if err := os.WriteFile(path, []byte(doc), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# comment\n\n2026-07-28 a-b  needs a  thing # more\n")
	got, err := readKnown(path)
	if diff := cmp.Diff(map[string]string{"2026-07-28 a-b": "needs a thing"}, got); diff != "" || err != nil {
		t.Errorf("known (-want +got):\n%s%v", diff, err)
	}
	write("2026-07-28 a-b\n")
	if _, err := readKnown(path); err == nil {
		t.Error("a line without a reason was accepted")
	}
}

func TestTheTaskFixtureStartsAndStops(t *testing.T) {
	f, err := startTaskFixture()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.stop(); err != nil {
		t.Error(err)
	}
}
