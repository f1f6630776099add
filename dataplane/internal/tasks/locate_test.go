package tasks

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/egress"
)

const internalToken = "0123456789abcdef0123456789abcdef"

// controlPlane answers the internal API by f.
func controlPlane(t *testing.T, path string, f http.HandlerFunc) *Locator {
	t.Helper()
	srv := httptest.NewServer(f)
	base, err := url.Parse(srv.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	client := egress.HTTPClient(egress.ClientOptions{})
	l, err := NewLocator(LocatorOptions{Base: base, Token: internalToken, Transport: client.Transport})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		srv.CloseClientConnections()
		srv.Close()
	})
	return l
}

func question() *routes.LocateRequest {
	return &routes.LocateRequest{
		Token: "alice's", Resource: "https://mcp.example.com/mcp", Host: "acme", TaskID: "t-1", Era: routes.LocateModern, Method: "tasks/get", RequestID: "r-7",
	}
}

func TestLocate(t *testing.T) {
	want := &routes.LocateAnswer{Outcome: routes.LocateOwner, Owner: &routes.LocatedOwner{Backend: "b", Source: routes.TaskClaimed, LifeMs: 86400000}}
	l := controlPlane(t, "/prefix/", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		got, decodeErr := routes.DecodeLocateRequest(body)
		switch {
		case err != nil || decodeErr != nil:
			t.Errorf("%v, %v", err, decodeErr)
		case r.Method != http.MethodPost || r.URL.Path != "/prefix/internal/v1/tasks/locate" || r.Header.Get("Content-Type") != "application/json":
			t.Errorf("%s %s, %v", r.Method, r.URL.Path, r.Header)
		case r.Header.Get("Authorization") != "Bearer "+internalToken:
			t.Errorf("Authorization %q", r.Header.Get("Authorization"))
		}
		if diff := cmp.Diff(question(), got); diff != "" {
			t.Errorf("question (-want +got):\n%s", diff)
		}
		doc, err := routes.EncodeLocateAnswer(want)
		if err != nil {
			t.Error(err)
		}
		w.Write(doc)
	})
	got, err := l.Locate(t.Context(), question())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"401": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) },
		"404": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) },
		"503": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) },
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		},
		"no JSON":           func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") },
		"an unknown member": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"outcome":"miss","more":1}`) },
		"no outcome":        func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{}`) },
		"an owner without a backend": func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"outcome":"owner","owner":{"source":"claim","lifeMs":1000}}`)
		},
		"an endless one": func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"outcome":"miss","cause":"`+strings.Repeat("x", routes.MaxLocateBody)+`"}`)
		},
		"one that breaks off": func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			l := controlPlane(t, "", answer)
			if a, err := l.Locate(t.Context(), question()); err == nil {
				t.Errorf("no error: %+v", a)
			} else if strings.Contains(err.Error(), "t-1") || strings.Contains(err.Error(), "alice's") {
				t.Errorf("the error tells what was asked: %v", err)
			}
		})
	}
}

func TestARefusalIsNamed(t *testing.T) {
	l := controlPlane(t, "", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(401)
		io.WriteString(w, `{"error":{"code":"token_refused","message":"m"}}`)
	})
	if _, err := l.Locate(t.Context(), question()); err == nil || !strings.Contains(err.Error(), `HTTP 401 "token_refused"`) {
		t.Errorf("%v", err)
	}
}

func TestNobodyToAsk(t *testing.T) {
	l, err := NewLocator(LocatorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Locate(t.Context(), question()); !errors.Is(err, ErrNoControlPlane) || !strings.Contains(err.Error(), "control_plane.admin_url") {
		t.Errorf("%v, want the field's name", err)
	}
	if _, err := NewLocator(LocatorOptions{Base: &url.URL{}}); err == nil {
		t.Error("no error without a transport")
	}
}

func TestQuestionsThatCantBeAsked(t *testing.T) {
	l := controlPlane(t, "", func(http.ResponseWriter, *http.Request) { t.Error("asked all the same") })
	q := question()
	q.TaskID = ""
	if _, err := l.Locate(t.Context(), q); err == nil {
		t.Error("no error")
	}
}

// hanging never answers.
type hanging struct{}

func (hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestAControlPlaneThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := NewLocator(LocatorOptions{Base: &url.URL{Scheme: "http", Host: "control-plane"}, Transport: hanging{}})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := l.Locate(t.Context(), question()); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != locatePatience {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
