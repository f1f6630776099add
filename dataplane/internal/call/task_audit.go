package call

import (
	"unicode/utf8"

	"go.uber.org/zap"
)

// maxRequestID bounds what a client's X-Request-Id puts into the audit, in bytes.
const maxRequestID = 128

// audit writes the line of a denial: whose it was, and why, but never the task's id.
func (c *call) audit(event, cause string) {
	ce := c.h.o.Audit.Check(zap.InfoLevel, event)
	if ce == nil {
		return
	}
	fields := []zap.Field{
		zap.String("event", event), zap.String("host", string(c.r.Host)), zap.String("principal", string(c.r.Identity.Principal)),
		zap.String("task", c.task), zap.String("method", c.r.Method), zap.String("cause", cause),
	}
	if id := c.requestID(); id != "" {
		fields = append(fields, zap.String("request_id", id))
	}
	ce.Write(fields...)
}

// requestID is what the client calls its request, empty if it does not say, or too much.
func (c *call) requestID() string {
	values := c.r.HTTP.Header["X-Request-Id"]
	if len(values) != 1 || len(values[0]) > maxRequestID || !utf8.ValidString(values[0]) {
		return ""
	}
	return values[0]
}

// lookedUp counts what became of a look for a task's owner.
func (c *call) lookedUp(outcome string) { c.h.metrics.lookups.WithLabelValues(outcome).Inc() }
