package listing

import (
	"encoding/json"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-mcp/weir/routes/egress"
	"github.com/weir-mcp/weir/routes/wire"
)

// metaSubscription names the stream in everything that is sent on it.
const metaSubscription = `"_meta":{"io.modelcontextprotocol/subscriptionId":`

// notification is one message of the stream; member and value are a member of its params, empty for none.
func (l *listener) notification(method, member string, value json.RawMessage) []byte {
	b := appendQuoted([]byte(`{"jsonrpc":"2.0","method":`), method)
	b = append(append(b, `,"params":{`+metaSubscription...), l.id...)
	b = append(b, '}')
	if member != "" {
		b = append(append(append(b, ','), member...), value...)
	}
	return append(b, "}}"...)
}

// taskNotification is the message about a task's state: all of it, and what else the backend said beside it.
// Source: SEP-2663 (Task Status Notifications).
func (l *listener) taskNotification(task json.RawMessage, meta wire.Object) []byte {
	b := appendQuoted([]byte(`{"jsonrpc":"2.0","method":`), egress.TaskUpdated)
	b = append(append(b, `,"params":{`+metaSubscription...), l.id...)
	for _, m := range meta {
		b = append(append(appendQuoted(append(b, ','), m.Name), ':'), m.Value...)
	}
	b = append(b, "},"...)
	return append(append(b, task[1:]...), '}') // a task has members, its id at least
}

// completion is the result that ends a stream (SubscriptionsListenResult of the schema, 2026-07-28).
func (l *listener) completion() json.RawMessage {
	return append(append([]byte(`{"resultType":"complete",`+metaSubscription), l.id...), "}}"...)
}

// append appends the filter as a SubscriptionFilter. Resources that were not agreed to are not in it.
func (f *filter) append(b []byte) []byte {
	b = append(b, '{')
	comma := func() {
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
	}
	for i, is := range f.lists {
		if is {
			comma()
			b = append(appendQuoted(b, listKinds[i].field), ":true"...)
		}
	}
	for _, m := range []struct {
		field string
		list  []string
	}{{"resourceSubscriptions", f.uris}, {"taskIds", f.tasks}} {
		if len(m.list) == 0 {
			continue
		}
		comma()
		b = append(appendQuoted(b, m.field), ":["...)
		for i, s := range slices.Sorted(slices.Values(m.list)) {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendQuoted(b, s)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

// listenMetrics of the streams.
type listenMetrics struct {
	open  prometheus.Gauge
	sent  *prometheus.CounterVec
	ended *prometheus.CounterVec
}

func newListenMetrics() listenMetrics {
	return listenMetrics{
		open: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_listing_listeners",
			Help: "Streams of subscriptions/listen that are open.",
		}),
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_listing_notifications_total",
			Help: "Notifications sent on them, by method. Changes that came together, or before a slow client read, are one.",
		}, []string{"method"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_listing_listeners_ended_total",
			Help: "Streams that the plane ended, by reason: drain, host_removed, token_expired, token_revoked, tasks_over.",
		}, []string{"reason"}),
	}
}

func (m listenMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.open, m.sent, m.ended}
}
