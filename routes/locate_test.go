package routes

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func question() *LocateRequest {
	return &LocateRequest{Token: "e.y.J", Resource: "https://mcp.example/mcp", Host: "acme", TaskID: "t \"1\" é", Era: LocateModern,
		Method: "tasks/get", RequestID: "r1"}
}

func TestLocateRequestRoundTrip(t *testing.T) {
	for name, r := range map[string]*LocateRequest{
		"everything": question(),
		"the least":  {Host: "acme", TaskID: "t", Era: LocateLegacy},
		"the most": {Token: strings.Repeat("x", maxLocateJWT), Resource: strings.Repeat("x", maxLocateText), Host: "acme",
			TaskID: strings.Repeat("\x01", MaxLocateID), Era: LocateModern, Method: strings.Repeat("x", maxLocateText)},
	} {
		doc, err := EncodeLocateRequest(r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := DecodeLocateRequest(doc)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(r, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestLocateAnswerRoundTrip(t *testing.T) {
	for name, a := range map[string]*LocateAnswer{
		"an owner": {Outcome: LocateOwner, Owner: &LocatedOwner{Backend: "a", Source: TaskMinted, Tool: "job", Session: "s", LifeMs: 1000}},
		"shared":   {Outcome: LocateOwner, Owner: &LocatedOwner{Backend: "a", Source: TaskShared, LifeMs: MaxTaskLife.Milliseconds()}},
		"a miss":   {Outcome: LocateMiss, Cause: CauseForeign},
		"no cause": {Outcome: LocateUnavailable},
	} {
		doc, err := EncodeLocateAnswer(a)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := DecodeLocateAnswer(doc)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(a, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// An owner arrives as it was sent, for whoever asked, or for everybody.
func TestAnOwnerTravels(t *testing.T) {
	minted := TaskOwner{Principal: "p", Backend: "a", Source: TaskMinted, Tool: "job", Session: "s", Life: time.Hour}
	if diff := cmp.Diff(&minted, OwnerOf(&minted).For("p")); diff != "" {
		t.Errorf("minted (-want +got):\n%s", diff)
	}
	shared := TaskOwner{Principal: AnyPrincipal, Backend: "a", Source: TaskShared, Life: time.Hour}
	if diff := cmp.Diff(&shared, OwnerOf(&shared).For("p")); diff != "" {
		t.Errorf("shared (-want +got):\n%s", diff)
	}
}

// Both ends refuse alike, and never quote what they were sent.
func TestLocateRequestsThatAreRefused(t *testing.T) {
	for sentence, edit := range map[string]func(*LocateRequest){
		"no host":           func(r *LocateRequest) { r.Host = "" },
		"no host's name":    func(r *LocateRequest) { r.Host = "../secret" },
		"no task":           func(r *LocateRequest) { r.TaskID = "" },
		"a long task":       func(r *LocateRequest) { r.TaskID = strings.Repeat("s", MaxLocateID+1) },
		"a task not UTF-8":  func(r *LocateRequest) { r.TaskID = "secret\xff" },
		"no era":            func(r *LocateRequest) { r.Era = "" },
		"another era":       func(r *LocateRequest) { r.Era = "secret" },
		"a long token":      func(r *LocateRequest) { r.Token = strings.Repeat("s", maxLocateJWT+1) },
		"a long resource":   func(r *LocateRequest) { r.Resource = strings.Repeat("s", maxLocateText+1) },
		"a long request id": func(r *LocateRequest) { r.RequestID = strings.Repeat("s", maxLocateText+1) },
		"all too long": func(r *LocateRequest) {
			r.Token, r.TaskID = strings.Repeat("\x01", maxLocateJWT), strings.Repeat("s", MaxLocateID)
		},
		"a token not UTF-8":  func(r *LocateRequest) { r.Token = "secret\xff" },
		"a method not UTF-8": func(r *LocateRequest) { r.Method = "secret\xff" },
	} {
		r := question()
		edit(r)
		if _, err := EncodeLocateRequest(r); !errors.Is(err, ErrLocate) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want ErrLocate", sentence, err)
		}
	}
	for sentence, doc := range map[string]string{
		"nothing":             ``,
		"null":                `null`,
		"a list":              `[]`,
		"a text":              `"secret"`,
		"cut off":             `{"host":"acme","taskId":"t","era":"modern"`,
		"more behind it":      `{"host":"acme","taskId":"t","era":"modern"}{}`,
		"a member twice":      `{"host":"acme","taskId":"t","taskId":"secret","era":"modern"}`,
		"an unknown member":   `{"host":"acme","taskId":"t","era":"modern","secret":1}`,
		"a member's case":     `{"host":"acme","TaskID":"t","era":"modern"}`,
		"another type":        `{"host":"acme","taskId":7,"era":"modern"}`,
		"another type, owner": `{"host":"acme","taskId":{"secret":1},"era":"modern"}`,
		"over the bound":      `{"host":"acme","taskId":"t","era":"modern"}` + strings.Repeat(" ", MaxLocateBody),
	} {
		if _, err := DecodeLocateRequest([]byte(doc)); !errors.Is(err, ErrLocate) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want ErrLocate", sentence, err)
		}
	}
}

func TestLocateAnswersThatAreRefused(t *testing.T) {
	for sentence, doc := range map[string]string{
		"no outcome":             `{}`,
		"another outcome":        `{"outcome":"secret"}`,
		"an owner without one":   `{"outcome":"owner"}`,
		"a miss with an owner":   `{"outcome":"miss","owner":{"backend":"a","source":"mint","lifeMs":1000}}`,
		"no backend":             `{"outcome":"owner","owner":{"backend":"","source":"mint","lifeMs":1000}}`,
		"another source":         `{"outcome":"owner","owner":{"backend":"a","source":"secret","lifeMs":1000}}`,
		"no life":                `{"outcome":"owner","owner":{"backend":"a","source":"mint"}}`,
		"a life without end":     `{"outcome":"owner","owner":{"backend":"a","source":"mint","lifeMs":9223372036854775807}}`,
		"a life that overflows":  `{"outcome":"owner","owner":{"backend":"a","source":"mint","lifeMs":18446744077310}}`,
		"an unknown member":      `{"outcome":"miss","secret":1}`,
		"an unknown one further": `{"outcome":"owner","owner":{"backend":"a","source":"mint","lifeMs":1000,"secret":1}}`,
		"a fraction":             `{"outcome":"owner","owner":{"backend":"a","source":"mint","lifeMs":1.5}}`,
	} {
		if _, err := DecodeLocateAnswer([]byte(doc)); !errors.Is(err, ErrLocate) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want ErrLocate", sentence, err)
		}
	}
	if _, err := EncodeLocateAnswer(&LocateAnswer{Outcome: LocateOwner, Owner: &LocatedOwner{Backend: "a", Source: TaskMinted}}); !errors.Is(err, ErrLocate) {
		t.Errorf("an owner without life is encoded: %v", err)
	}
}

// What one side takes, it gives out again, and the other side takes it too.
func FuzzLocate(f *testing.F) {
	for _, seed := range []string{
		`{"host":"acme","taskId":"t","era":"modern"}`, `{"token":"x","resource":"y","host":"acme","taskId":"\u0001","era":"legacy","method":"m","requestId":"r"}`,
		`{"outcome":"owner","owner":{"backend":"a","source":"mint","lifeMs":1000}}`, `{"outcome":"miss","cause":"foreign"}`, `{"outcome":`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if r, err := DecodeLocateRequest(doc); err == nil {
			again, err := EncodeLocateRequest(r)
			if err != nil && len(doc) < MaxLocateBody/6 {
				t.Fatalf("%+v is decoded and not encoded: %v", r, err)
			}
			if err == nil {
				if got, err := DecodeLocateRequest(again); err != nil || *got != *r {
					t.Fatalf("%+v became %+v, %v", r, got, err)
				}
			}
		} else if !errors.Is(err, ErrLocate) {
			t.Fatalf("%v is not ErrLocate", err)
		}
		if a, err := DecodeLocateAnswer(doc); err == nil {
			again, err := EncodeLocateAnswer(a)
			if err != nil && len(doc) < MaxLocateBody/6 {
				t.Fatalf("%+v is decoded and not encoded: %v", a, err)
			}
			if err == nil {
				if got, err := DecodeLocateAnswer(again); err != nil || !cmp.Equal(got, a) {
					t.Fatalf("%+v became %+v, %v", a, got, err)
				}
			}
			if a.Outcome == LocateOwner && a.Owner.For("p").Validate() != nil {
				t.Fatalf("%+v is no owner", a.Owner)
			}
		}
	})
}
