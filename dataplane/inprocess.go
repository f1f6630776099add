package dataplane

import (
	"io"
	"net/http"
	"sync"
)

// handlerTransport makes HTTP exchanges with a handler in the same process; bodies stream both ways.
type handlerTransport struct{ handler http.Handler }

// RoundTrip returns when the handler has sent its header. The handler ends when the request's context does or nobody reads on.
func (t handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	body, out := io.Pipe()
	w := &pipeWriter{out: out, header: http.Header{}, sent: make(chan struct{})}
	r = r.Clone(r.Context())
	r.RequestURI = r.URL.RequestURI()
	go func() {
		defer func() {
			if v := recover(); v != nil { // as net/http does: the connection breaks, the process does not
				out.CloseWithError(io.ErrUnexpectedEOF)
				w.WriteHeader(http.StatusInternalServerError)
			}
		}()
		t.handler.ServeHTTP(w, r)
		w.WriteHeader(http.StatusOK)
		out.Close()
	}()
	select {
	case <-w.sent:
	case <-r.Context().Done():
		body.Close()
		return nil, r.Context().Err()
	}
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.snapshot, Body: body, ContentLength: -1, Request: r,
	}, nil
}

// pipeWriter is the handler's view: writes block until they are read, so there is nothing to flush.
type pipeWriter struct {
	out      *io.PipeWriter
	header   http.Header
	once     sync.Once
	sent     chan struct{} // closed once status and snapshot are set
	status   int
	snapshot http.Header
}

func (w *pipeWriter) Header() http.Header { return w.header }

func (w *pipeWriter) WriteHeader(status int) {
	w.once.Do(func() {
		w.status, w.snapshot = status, w.header.Clone()
		close(w.sent)
	})
}

func (w *pipeWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.out.Write(p)
}

// Flush makes it an http.Flusher.
func (w *pipeWriter) Flush() {}
