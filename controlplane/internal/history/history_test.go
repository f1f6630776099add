package history

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/routestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pack(t *testing.T, b *routestest.HostBuilder) []byte {
	t.Helper()
	table, err := routes.EncodeHost(b.Document())
	if err != nil {
		t.Fatal(err)
	}
	list, err := routes.EncodeList(b.List())
	if err != nil {
		t.Fatal(err)
	}
	archive, err := Pack(b.Document(), table, list)
	if err != nil {
		t.Fatal(err)
	}
	return archive
}

func TestPack(t *testing.T) {
	b := routestest.Host("acme").Tool("x", "a", "x").Tool("y", "b", "y").Prompt("p", "a", "p").Template("doc:///{id}", "a").Prefix("file:///", "b")
	archive := pack(t, b)
	if counts, err := CountsOf(archive); err != nil || counts != (Counts{Tools: 2, Prompts: 1, ResourceTemplates: 1, ResourcePrefixes: 1}) {
		t.Errorf("CountsOf = %+v, %v", counts, err)
	}
	doc, list, err := Unpack(archive)
	if err != nil {
		t.Fatal(err)
	}
	want, err := routes.EncodeHost(b.Document())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := routes.EncodeHost(doc); err != nil || !bytes.Equal(got, want) {
		t.Errorf("document %s, %v; want %s", got, err, want)
	}
	if diff := cmp.Diff(b.List(), list); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	for name, torn := range map[string][]byte{
		"empty": nil, "no head": []byte("x"), "a head alone": []byte("{}\n"), "cut off": archive[:len(archive)*2/3],
		"absurd sizes": []byte(`{"table":1,"list":99999999999}` + "\n"), "negative sizes": []byte(`{"table":-1}` + "\n"),
	} {
		if _, _, err := Unpack(torn); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add([]byte(`{"table":2,"list":2}` + "\n\x00\x04\x00\xfb\xff{}{}"))
	f.Fuzz(func(t *testing.T, archive []byte) {
		if len(archive) > 1 && bytes.Contains(archive, []byte("00000")) {
			return // it would ask for much memory, within the bound
		}
		_, _, _ = Unpack(archive) // it must not panic
	})
}

func TestCompare(t *testing.T) {
	from := routestest.Host("acme").Tool("same", "a", "same").Tool("moved", "a", "x").Tool("gone", "a", "g").Resource("doc:///1", "b")
	to := routestest.Host("acme").Tool("same", "a", "same").Tool("moved", "b", "x").Tool("new", "a", "n").
		Edit(func(vh *routes.VirtualHost) {
			vh.Instructions = "other"
			b := vh.Backends["a"]
			b.AddHeaders = map[string]routes.SecretRef{"Authorization": "Bearer ${env:TOKEN}"}
			vh.Backends["a"] = b
		})
	got := Compare(from.Document(), to.Document(), from.List(), to.List())
	want := Difference{
		Tools:     Names{Added: []string{"new"}, Removed: []string{"gone"}, Changed: []string{"moved"}},
		Resources: Names{Removed: []string{"doc:///1"}},
		Backends:  Names{Changed: []string{"a"}},
		Policy:    []string{"instructions"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	redefined := from.List()
	redefined.Tools = append([]routes.ListEntry{}, redefined.Tools...)
	redefined.Tools[0].Digest = "other"
	if got := Compare(from.Document(), from.Document(), from.List(), redefined); len(got.Tools.Changed) != 1 {
		t.Errorf("another definition: %+v, want a changed tool", got)
	}
}

func TestSubjects(t *testing.T) {
	if h, b := SubjectOf(HoldSubject("acme")); h != "acme" || b != "" {
		t.Errorf("hold: %q, %q", h, b)
	}
	if h, b := SubjectOf(PinsSubject("github")); h != "" || b != "github" {
		t.Errorf("pins: %q, %q", h, b)
	}
	if h, b := SubjectOf("other/x"); h != "" || b != "" {
		t.Errorf("other: %q, %q", h, b)
	}
}
