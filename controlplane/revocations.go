package controlplane

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/weir-mcp/weir/routes/access"
)

// newRevocations keeps what was revoked. Every replica does, leading or not, and gives the store back what it lost.
func (s *Server) newRevocations(writer access.RevocationWriter) (*access.Revocations, error) {
	log := s.log.Named("revocations")
	k, err := access.NewRevocations(access.RevocationOptions{
		Store: s.reader, Writer: writer,
		OnError: func(err error) { log.Warn("revocations may be behind", zap.Error(err)) },
	})
	if err != nil {
		return nil, err
	}
	return k, errors.Join(
		s.o.Registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "weir_controlplane_revocations",
			Help: "Revocations that are in force.",
		}, func() float64 { return float64(k.Len()) })),
		s.o.Registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "weir_controlplane_revocations_age_seconds",
			Help: "How long revocations may have been missed; 0 while they are followed.",
		}, func() float64 { return k.Age().Seconds() })),
	)
}
