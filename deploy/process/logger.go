package process

import (
	"cmp"
	"fmt"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// NewLogger writes JSON lines to stderr at the given level (debug, info, warn, error; "info" when empty). Nothing is
// sampled away: one line a call is what an operator counts on. What the logger named "audit" says at info is written at every level.
func NewLogger(level string) (*zap.Logger, error) {
	lvl, err := zapcore.ParseLevel(cmp.Or(level, "info"))
	if err != nil {
		return nil, fmt.Errorf("log level %q: want debug, info, warn or error", level)
	}
	cfg := zap.NewProductionConfig()
	cfg.Level = zap.NewAtomicLevelAt(min(lvl, zapcore.InfoLevel))
	cfg.Sampling = nil
	cfg.DisableCaller = true
	cfg.DisableStacktrace = true
	cfg.EncoderConfig.TimeKey = "time"
	cfg.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	return cfg.Build(zap.WrapCore(func(core zapcore.Core) zapcore.Core { return leveled{core, lvl} }))
}

// leveled writes entries of a level and above, and those of the audit: who wants no line of every call wants one of every denial.
type leveled struct {
	zapcore.Core
	level zapcore.Level
}

// With keeps the level.
func (c leveled) With(fields []zapcore.Field) zapcore.Core {
	return leveled{c.Core.With(fields), c.level}
}

// Check takes what is to be written.
func (c leveled) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if e.Level < c.level && e.LoggerName != "audit" && !strings.HasSuffix(e.LoggerName, ".audit") {
		return ce
	}
	return c.Core.Check(e, ce)
}
