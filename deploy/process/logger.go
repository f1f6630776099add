package process

import (
	"cmp"
	"fmt"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// NewLogger writes JSON lines to stderr at the given level (debug, info, warn, error; "info" when empty). Nothing is
// sampled away: one line a call is what an operator counts on.
func NewLogger(level string) (*zap.Logger, error) {
	lvl, err := zapcore.ParseLevel(cmp.Or(level, "info"))
	if err != nil {
		return nil, fmt.Errorf("log level %q: want debug, info, warn or error", level)
	}
	cfg := zap.NewProductionConfig()
	cfg.Level = zap.NewAtomicLevelAt(lvl)
	cfg.Sampling = nil
	cfg.DisableCaller = true
	cfg.DisableStacktrace = true
	cfg.EncoderConfig.TimeKey = "time"
	cfg.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	return cfg.Build()
}
