package routes_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
)

func TestRevocationFaultsNameTheField(t *testing.T) {
	at := time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		r    routes.Revocation
		want string // empty: it is valid
	}{
		"a token":                     {routes.Revocation{Issuer: "i", TokenID: "t", Until: at}, ""},
		"a subject":                   {routes.Revocation{Issuer: "i", Subject: "s", IssuedBefore: at, Until: at}, ""},
		"an end that has passed":      {routes.Revocation{Issuer: "i", TokenID: "t", Until: time.Unix(1, 0)}, ""},
		"nothing":                     {routes.Revocation{}, "issuer: is required\njti: this or subject is required\nuntil: is required"},
		"no issuer":                   {routes.Revocation{TokenID: "t", Until: at}, "issuer: is required"},
		"both":                        {routes.Revocation{Issuer: "i", TokenID: "t", Subject: "s", Until: at}, "subject: can't stand beside jti"},
		"a moment for one token":      {routes.Revocation{Issuer: "i", TokenID: "t", IssuedBefore: at, Until: at}, "issued_before: goes with subject only"},
		"a subject without a moment":  {routes.Revocation{Issuer: "i", Subject: "s", Until: at}, "issued_before: is required with subject"},
		"a long id":                   {routes.Revocation{Issuer: "i", TokenID: strings.Repeat("x", 1025), Until: at}, "jti: has 1025 bytes; at most 1024 are possible"},
		"bytes that are no text":      {routes.Revocation{Issuer: "i", TokenID: "\xff", Until: at}, "jti: is not UTF-8"},
		"an end nobody can write":     {routes.Revocation{Issuer: "i", TokenID: "t", Until: at.AddDate(9000, 0, 0)}, "until: is not between the years 1970 and 9999"},
		"a moment before all clocks":  {routes.Revocation{Issuer: "i", Subject: "s", IssuedBefore: time.Unix(-1e9, 0), Until: at}, "issued_before: is not between the years 1970 and 9999"},
		"a subject that is very long": {routes.Revocation{Issuer: "i", Subject: strings.Repeat("x", 1024), IssuedBefore: at, Until: at}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := tt.r.Validate(); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Validate (-want +got):\n%s", diff)
			}
		})
	}
}

func TestARevocationIsReadAsItWasWritten(t *testing.T) {
	cet := time.FixedZone("CET", 3600)
	r := routes.Revocation{Issuer: "i", Subject: "ünï\n", IssuedBefore: time.Date(2026, 1, 1, 1, 2, 3, 4, cet), Until: time.Date(2090, 1, 1, 1, 0, 0, 0, cet)}
	doc, err := routes.EncodeRevocation(r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := routes.DecodeRevocation(doc)
	if err != nil {
		t.Fatal(err)
	}
	if !got.IssuedBefore.Equal(r.IssuedBefore) || !got.Until.Equal(r.Until) || got.Subject != r.Subject || got.Key() != r.Key() {
		t.Errorf("%+v (%s), want %+v (%s)", got, got.Key(), r, r.Key())
	}
}

func TestKeysOfRevocations(t *testing.T) {
	at := time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC)
	base := routes.Revocation{Issuer: "i", Subject: "s", IssuedBefore: at, Until: at}
	same := base
	same.Until = at.Add(time.Hour)
	if base.Key() != same.Key() {
		t.Error("another end makes another key")
	}
	for name, other := range map[string]routes.Revocation{
		"issuer": {Issuer: "is", Subject: "", IssuedBefore: at}, "token": {Issuer: "i", TokenID: "s"},
		"moment": {Issuer: "i", Subject: "s", IssuedBefore: at.Add(1)},
	} {
		if other.Key() == base.Key() {
			t.Errorf("another %s has the same key", name)
		}
	}
}

func FuzzDecodeRevocation(f *testing.F) {
	for _, s := range []string{`{"issuer":"i","jti":"t","until":"2090-01-01T00:00:00Z"}`, `{}`, `[]`, `{"until":"x"}`,
		`{"issuer":"i","subject":"s","issued_before":"2026-01-01T00:00:00.5+01:00","until":"2090-01-01T00:00:00Z","later":1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		r, err := routes.DecodeRevocation(doc)
		if err != nil {
			return
		}
		again, err := routes.EncodeRevocation(r)
		if err != nil {
			t.Fatalf("%+v can't be encoded: %v", r, err)
		}
		if back, err := routes.DecodeRevocation(again); err != nil || back.Key() != r.Key() || !back.Until.Equal(r.Until) {
			t.Fatalf("%s came back as %+v, %v", again, back, err)
		}
	})
}
