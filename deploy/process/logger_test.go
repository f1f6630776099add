package process

import (
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// The level is that of every logger but the audit's.
func TestTheAuditIsWrittenAtEveryLevel(t *testing.T) {
	for name, tt := range map[string]struct {
		level, logger string
		at            zapcore.Level
		want          bool
	}{
		"info at info":                   {"", "call", zap.InfoLevel, true},
		"debug at info":                  {"", "call", zap.DebugLevel, false},
		"info at warn":                   {"warn", "call", zap.InfoLevel, false},
		"warn at warn":                   {"warn", "call", zap.WarnLevel, true},
		"warn at error":                  {"error", "call", zap.WarnLevel, false},
		"debug at debug":                 {"debug", "call", zap.DebugLevel, true},
		"the audit at info":              {"info", "audit", zap.InfoLevel, true},
		"the audit at warn":              {"warn", "audit", zap.InfoLevel, true},
		"the audit of a part at error":   {"error", "dataplane.audit", zap.InfoLevel, true},
		"the audit's own debug":          {"info", "audit", zap.DebugLevel, false},
		"another name that ends like it": {"warn", "noaudit", zap.InfoLevel, false},
	} {
		t.Run(name, func(t *testing.T) {
			log, err := NewLogger(tt.level)
			if err != nil {
				t.Fatal(err)
			}
			for how, l := range map[string]*zap.Logger{"plain": log.Named(tt.logger), "with fields": log.With(zap.Int("a", 1)).Named(tt.logger)} {
				if got := l.Check(tt.at, "x") != nil; got != tt.want {
					t.Errorf("%s: written: %v, want %v", how, got, tt.want)
				}
			}
		})
	}
	if _, err := NewLogger("loud"); err == nil {
		t.Error("a level that is none was taken")
	}
}
