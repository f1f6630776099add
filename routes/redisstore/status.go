package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// statusesPerRead is how many statuses one round trip reads at most.
const statusesPerRead = 64

// PutStatus stores what a dataplane says of itself, for ttl.
func (r *Reader) PutStatus(ctx context.Context, dataplane string, doc []byte, ttl time.Duration) error {
	ms, err := milliseconds(ttl)
	switch {
	case err != nil:
		return fmt.Errorf("put status: %w", err)
	case dataplane == "":
		return errors.New("put status: dataplane is empty")
	}
	_, err = r.run(ctx, "put status", statusScript, []string{r.keys.statuses(), r.keys.status(dataplane)}, dataplane, ms, doc)
	return err
}

// Statuses returns what every dataplane last said of itself; whoever fell silent is missing.
func (r *Reader) Statuses(ctx context.Context) (map[string][]byte, error) {
	var names *redis.StringSliceCmd
	err := r.gate.do(ctx, "statuses", func(ctx context.Context) error {
		names = r.client.ZRange(ctx, r.keys.statuses(), 0, -1)
		return names.Err()
	})
	if err != nil {
		return nil, err
	}
	statuses := make(map[string][]byte, len(names.Val()))
	for rest := names.Val(); len(rest) > 0; {
		some := rest[:min(len(rest), statusesPerRead)]
		rest = rest[len(some):]
		keys := make([]string, len(some))
		for i, name := range some {
			keys[i] = r.keys.status(name)
		}
		var documents *redis.SliceCmd
		err := r.gate.do(ctx, "statuses", func(ctx context.Context) error {
			documents = r.client.MGet(ctx, keys...)
			return documents.Err()
		})
		if err != nil {
			return nil, err
		}
		for i, name := range some {
			if document, ok := documents.Val()[i].(string); ok {
				statuses[name] = []byte(document)
			}
		}
	}
	return statuses, nil
}
