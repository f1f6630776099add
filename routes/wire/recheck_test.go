package wire

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-mcp/weir/routes"
	"github.com/weir-mcp/weir/routes/access"
)

// onceGood is an Authenticator of one token that may be revoked at any time.
type onceGood struct{ err atomic.Pointer[error] }

func (a *onceGood) Verify(ctx context.Context, _, _ string) (*access.Identity, error) {
	if err := a.Recheck(ctx, nil); err != nil {
		return nil, err
	}
	return &access.Identity{Subject: "alice", Hosts: []routes.HostID{"acme"}}, nil
}

func (a *onceGood) Recheck(context.Context, *access.Identity) error {
	if err := a.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (a *onceGood) fail(err error) { a.err.Store(&err) }

// ask makes a request whose call streams, and ends when its context does.
func ask(t *testing.T, auth *onceGood, stream bool) (answer *httptest.ResponseRecorder, cause *error) {
	t.Helper()
	cause = new(error)
	e, err := NewEndpoint(Options{Auth: auth, Recheck: auth.Recheck, Loopback: true, KeepAlive: time.Minute, Dispatch: func(w *Response, r *Request) {
		if stream {
			if err := w.Begin(); err != nil {
				t.Error(err)
			}
		}
		select {
		case <-r.HTTP.Context().Done():
			*cause = context.Cause(r.HTTP.Context())
			w.Fail(Internal("", "the client left"))
		case <-time.After(time.Hour):
			w.Result([]byte("{}"))
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "http://localhost/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x"}}`))
	r.Header = http.Header{"Authorization": {"Bearer t"}, "Content-Type": {"application/json"}, "Accept": {"*/*"}}
	answer = httptest.NewRecorder()
	e.ServeHTTP(answer, r)
	return answer, cause
}

func TestAStreamEndsWithItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		auth := &onceGood{}
		revoked := fmt.Errorf("%w: revoked", access.ErrUnauthorized)
		began := time.Now()
		time.AfterFunc(10*time.Minute, func() { auth.fail(revoked) })
		w, cause := ask(t, auth, true)
		if took := time.Since(began); took < 10*time.Minute || took > 10*time.Minute+time.Second {
			t.Errorf("ended after %v, want a second after 10m at most", took)
		}
		want := `data: {"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"the token is not accepted any more","data":{"reason":"unauthorized"}}}` + "\n\n"
		if !strings.HasSuffix(w.Body.String(), want) || strings.Contains(w.Body.String(), "the client left") {
			t.Errorf("the stream %q does not end with %q", w.Body, want)
		}
		if !errors.Is(*cause, access.ErrUnauthorized) {
			t.Errorf("the request's context ended with %v", *cause)
		}
	})
}

func TestAnAnswerThatDoesNotStreamIsGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		auth := &onceGood{}
		time.AfterFunc(time.Minute, func() { auth.fail(access.ErrUnauthorized) })
		w, cause := ask(t, auth, false)
		if w.Code != http.StatusOK || *cause != nil || !strings.Contains(w.Body.String(), `"result":{}`) {
			t.Errorf("%d %s, cause %v", w.Code, w.Body, *cause)
		}
	})
}

func TestAStreamOfAGoodTokenGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, cause := ask(t, &onceGood{}, true)
		if *cause != nil || !strings.Contains(w.Body.String(), `"result":{}`) {
			t.Errorf("%d %s, cause %v", w.Code, w.Body, *cause)
		}
	})
}

func TestRevocationsThatAreNotKnown(t *testing.T) {
	auth := &onceGood{}
	auth.fail(fmt.Errorf("%w: not read yet", access.ErrUnconfirmed))
	w, _ := ask(t, auth, false)
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || w.Header().Get("WWW-Authenticate") != "" {
		t.Errorf("%d %v %s, want 503 with Retry-After and no challenge", w.Code, w.Header(), w.Body)
	}
}
