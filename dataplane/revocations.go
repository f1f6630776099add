package dataplane

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/weir-mcp/weir/routes/access"
)

// newRevocations keeps what was revoked; it is not asked for where there is no auth.
func (s *Server) newRevocations(reg prometheus.Registerer) (*access.Revocations, error) {
	log := s.log.Named("revocations")
	k, err := access.NewRevocations(access.RevocationOptions{
		Store: s.reader, FailClosedAfter: s.cfg.FailClosedAfter,
		OnError: func(err error) { log.Warn("revocations may be behind", zap.Error(err)) },
	})
	if err != nil {
		return nil, err
	}
	return k, errors.Join(
		reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "weir_dataplane_revocations",
			Help: "Revocations that are in force.",
		}, func() float64 { return float64(k.Len()) })),
		reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "weir_dataplane_revocations_age_seconds",
			Help: "How long revocations may have been missed; 0 while they are followed.",
		}, func() float64 { return k.Age().Seconds() })),
	)
}

// recheck ends the streams of callers whose tokens are revoked while they run. Expiry ends none: a call that was begun in time
// may end.
func (s *Server) recheck(ctx context.Context, id *access.Identity) error {
	return s.verifier.Recheck(ctx, id, false)
}

// waitReady closes ready once Redis was reached and revocations are known.
func (s *Server) waitReady(ctx context.Context) error {
	needed := []<-chan struct{}{s.snapshots.Reached()}
	if s.revocations != nil {
		needed = append(needed, s.revocations.Loaded())
	}
	for _, part := range needed {
		select {
		case <-part:
		case <-ctx.Done():
			return nil
		}
	}
	close(s.ready)
	return nil
}

// readiness is what /readyz says. It answers from memory.
func (s *Server) readiness() (map[string]any, error) {
	detail := map[string]any{"redis": "reachable"}
	if age := s.snapshots.Age(); age > 0 {
		detail["redis"] = "unreachable"
		detail["snapshotAgeSeconds"] = age.Round(time.Millisecond).Seconds()
	}
	if s.revocations != nil {
		detail["revocations"] = s.revocations.Len()
		if age := s.revocations.Age(); age > 0 {
			detail["revocationsAgeSeconds"] = age.Round(time.Millisecond).Seconds()
		}
	}
	select {
	case <-s.snapshots.Reached():
	default:
		detail["redis"] = "not reached yet"
		return detail, errors.New("redis was not reached yet")
	}
	select {
	case <-s.ready:
	default:
		return detail, errors.New("revocations were not read yet")
	}
	if s.draining.Load() {
		return detail, errors.New("draining")
	}
	return detail, nil
}
