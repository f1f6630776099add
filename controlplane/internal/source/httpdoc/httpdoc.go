// Package httpdoc is a source of backends that is one JSON document, polled over HTTP with a condition (RFC 9110 § 13.1.2), so
// that a document that did not change costs an empty answer. docs/sources.md describes the document.
package httpdoc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/weir-mcp/weir/controlplane/internal/config"
	"github.com/weir-mcp/weir/controlplane/internal/source"
	"github.com/weir-mcp/weir/routes/egress"
)

// maxDocument bounds a document, in bytes.
const maxDocument = 4 << 20

// Options of a Source.
type Options struct {
	Config *config.HTTPSource
	// Expand resolves the references of Config.Headers, anew for each request.
	Expand func(string) (string, error)
	Client *http.Client                      // nil: egress.HTTPClient, which follows no redirects
	Jitter func(time.Duration) time.Duration // nil: ±10 %
}

// Source polls one document.
type Source struct {
	o      Options
	client *http.Client
	etag   string // of the document that was last taken; empty: ask for it whatever it is
}

var _ source.Source = (*Source)(nil)

// New checks the options; it connects to nothing.
func New(o Options) (*Source, error) {
	if o.Config == nil || o.Expand == nil {
		return nil, errors.New("httpdoc: Config and Expand are required")
	}
	if o.Jitter == nil {
		o.Jitter = func(d time.Duration) time.Duration { return time.Duration(float64(d) * (0.9 + 0.2*rand.Float64())) }
	}
	return &Source{
		o: o, client: cmp.Or(o.Client, egress.HTTPClient(egress.ClientOptions{TLS: o.Config.TLS, Timeout: o.Config.Timeout})),
	}, nil
}

// firstRetry is how soon a document that failed is asked for again; later retries come as late as the interval.
const firstRetry = time.Second

// Run polls until ctx ends.
func (s *Source) Run(ctx context.Context, report func(source.Report)) error {
	defer s.client.CloseIdleConnections()
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval, retry.Multiplier = min(firstRetry, s.o.Config.Interval), s.o.Config.Interval, 2
	for ctx.Err() == nil {
		r := s.poll(ctx)
		report(r)
		pause := s.o.Jitter(s.o.Config.Interval)
		if r.Err != nil {
			pause = min(retry.NextBackOff(), pause)
		} else {
			retry.Reset()
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// poll asks once.
func (s *Source) poll(ctx context.Context) source.Report {
	ctx, cancel := context.WithTimeout(ctx, s.o.Config.Timeout)
	defer cancel()
	req, err := s.request(ctx)
	if err != nil {
		return source.Report{Err: err}
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return source.Report{Err: bare(err)}
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotModified && s.etag != "":
		return source.Report{Unchanged: true}
	case resp.StatusCode/100 == 3:
		return source.Report{Err: fmt.Errorf("status %d: redirects are not followed", resp.StatusCode)}
	case resp.StatusCode != http.StatusOK:
		return source.Report{Err: fmt.Errorf("status %d", resp.StatusCode)}
	case resp.Header.Get("Content-Encoding") != "":
		return source.Report{Err: errors.New("the answer has a Content-Encoding that was not asked for")}
	}
	doc, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if err != nil {
		return source.Report{Err: fmt.Errorf("read the document: %w", bare(err))}
	}
	if len(doc) > maxDocument {
		return source.Report{Err: fmt.Errorf("the document is over %d MiB", maxDocument>>20)}
	}
	entries, err := Decode(doc)
	if err != nil {
		return source.Report{Err: err}
	}
	s.etag = resp.Header.Get("ETag") // only of what was taken: a bad document is asked for again
	return source.Report{Entries: entries}
}

func (s *Source) request(ctx context.Context) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.o.Config.URL, nil)
	if err != nil {
		return nil, errors.New("the source's url is none")
	}
	req.Header.Set("Accept", "application/json")
	for name, value := range s.o.Config.Headers {
		expanded, err := s.o.Expand(value)
		if err != nil {
			return nil, fmt.Errorf("header %s: %w", name, err)
		}
		req.Header.Set(name, expanded)
	}
	if s.etag != "" {
		req.Header.Set("If-None-Match", s.etag)
	}
	return req, nil
}

// bare takes the URL off an error: its query may be a secret.
func bare(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
