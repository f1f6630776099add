package process

import (
	"encoding/json"
	"maps"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Check is one readiness condition: nil is ready; detail is shown in /readyz's JSON. It is called on every request to
// /readyz, so it should answer from memory. It must be safe for concurrent use.
type Check func() (detail map[string]any, err error)

// OpsHandler serves /healthz (200 while the process runs), /readyz (200 or 503 with JSON) and /metrics. A nil ready is
// always ready.
func OpsHandler(reg prometheus.Gatherer, ready Check) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n")) // the prober left: nobody to tell
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		body := map[string]any{}
		var err error
		if ready != nil {
			var detail map[string]any
			detail, err = ready()
			maps.Copy(body, detail)
		}
		status := http.StatusOK
		if body["ready"] = err == nil; err != nil {
			status, body["reason"] = http.StatusServiceUnavailable, err.Error()
		}
		doc, err := json.Marshal(body)
		if err != nil {
			status, doc = http.StatusInternalServerError, []byte(`{"ready":false,"reason":"readiness detail can't be encoded"}`)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_, _ = w.Write(append(doc, '\n')) // as above
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	return mux
}
