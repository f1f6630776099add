package tasks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-mcp/weir/routes"
)

// locatePath is where the control plane's internal API answers. Source: DESIGN § 6.
const locatePath = "/internal/v1/tasks/locate"

// locatePatience bounds one question, connection included. The control plane takes 5 s at most.
const locatePatience = 6 * time.Second

// ErrNoControlPlane: nobody can be asked; the text names what the config lacks.
var ErrNoControlPlane = errors.New("control_plane.admin_url is not set")

// LocatorOptions are those of a Locator.
type LocatorOptions struct {
	// Base is the control plane's internal API; nil: there is none, and every question is ErrNoControlPlane.
	Base *url.URL
	// Token is that of the internal API.
	Token string
	// Transport makes the HTTP exchange; it follows no redirects and repeats nothing that may have been written. Needed with Base.
	Transport  http.RoundTripper
	Registerer prometheus.Registerer // nil: the metrics are not exposed
}

// Locator asks the control plane for tasks that nobody recorded. Safe for concurrent use.
type Locator struct {
	o    LocatorOptions
	took *prometheus.HistogramVec
}

// NewLocator checks the options; it connects nowhere.
func NewLocator(o LocatorOptions) (*Locator, error) {
	if o.Base != nil && o.Transport == nil {
		return nil, errors.New("tasks: a Locator needs a Transport")
	}
	l := &Locator{o: o, took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "weir_task_locate_seconds",
		Help:    "Questions to the control plane for unrecorded tasks, by outcome.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"outcome"})}
	if o.Registerer == nil {
		return l, nil
	}
	return l, o.Registerer.Register(l.took)
}

// Locate asks once. An error means that there is no answer; it never quotes what was asked.
func (l *Locator) Locate(ctx context.Context, q *routes.LocateRequest) (*routes.LocateAnswer, error) {
	if l.o.Base == nil {
		return nil, ErrNoControlPlane
	}
	began := time.Now()
	a, err := l.ask(ctx, q)
	outcome := "failed"
	if err == nil {
		outcome = string(a.Outcome)
	}
	l.took.WithLabelValues(outcome).Observe(time.Since(began).Seconds())
	if err != nil {
		return nil, fmt.Errorf("locate task: %w", err)
	}
	return a, nil
}

func (l *Locator) ask(ctx context.Context, q *routes.LocateRequest) (*routes.LocateAnswer, error) {
	body, err := routes.EncodeLocateRequest(q)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, locatePatience)
	defer cancel()
	u := *l.o.Base
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/")+locatePath, ""
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Authorization", "Bearer "+l.o.Token)
	resp, err := l.o.Transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	doc, err := io.ReadAll(io.LimitReader(resp.Body, routes.MaxLocateBody+1))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode != http.StatusOK:
		return nil, refused(resp.StatusCode, doc)
	}
	return routes.DecodeLocateAnswer(doc)
}

// refused says why there is no answer, in the words of the admin API where it has some (docs/admin-api.md): "unauthorized" speaks of
// control_plane.token, "token_refused" of the caller's.
func refused(status int, doc []byte) error {
	var body struct {
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	if json.Unmarshal(doc, &body) != nil || len(body.Error.Code) > 64 {
		body.Error.Code = ""
	}
	return fmt.Errorf("the control plane answered HTTP %d %q", status, body.Error.Code)
}
