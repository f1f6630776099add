package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-mcp/weir/routes"
)

const (
	// revocationsPerCall is how many one call of a script takes, and revocationsPerRead how many one round trip reads, about.
	revocationsPerCall = 64
	revocationsPerRead = 1000
	// revocationGrace is how long one stays after it ended: clocks differ, and a plane that starts meanwhile goes by its own.
	revocationGrace = 10 * time.Minute
)

// replyFull says that nothing was written: the store holds as many revocations as it may.
const replyFull = "FULL"

// revokeScript adds revocations, or prolongs them: the later end stands. It asks for no lease, since a token must be revocable
// while nobody leads, and since adding is all that can be done: two who do it at once don't disturb each other.
//
// KEYS 1 fence, 2 revocations, 3 changes; ARGV 1 a fresh random id, 2 length of the stream, 3 how many may stand; then a
// revocation: key, end in ms, document.
//
// An empty Redis gets its incarnation here as it would from the first leader, who finds it: an entry of the stream needs one.
var revokeScript = redis.NewScript(luaBelow + `
local added, news = 0, {}
for a = 4, #ARGV, 3 do
  local stands = redis.call('HGET', KEYS[2], ARGV[a])
  local ends = stands and string.match(stands, '^(%d+) ')
  if not stands then added = added + 1 end
  if not ends or below(ends, ARGV[a + 1]) then table.insert(news, a) end
end
if #news == 0 then return {'OK'} end
if added > 0 and redis.call('HLEN', KEYS[2]) + added > tonumber(ARGV[3]) then return {'FULL'} end
local documents = {}
for _, a in ipairs(news) do
  redis.call('HSET', KEYS[2], ARGV[a], ARGV[a + 1] .. ' ' .. ARGV[a + 2])
  table.insert(documents, ARGV[a + 2])
end
local incarnation = redis.call('HGET', KEYS[1], 'incarnation')
if not incarnation then
  incarnation = ARGV[1]
  redis.call('HSET', KEYS[1], 'incarnation', incarnation)
end
local sequence = string.format('%.0f', redis.call('HINCRBY', KEYS[1], 'sequence', 1))
redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[2], '*', 'kind', 'revocation', 'incarnation', incarnation,
  'sequence', sequence, 'revocations', '[' .. table.concat(documents, ',') .. ']')
return {'OK'}
`)

// dropScript removes the revocations that ended long enough ago; those that were prolonged meanwhile stay.
//
// KEYS 1 revocations; ARGV 1 for how long, in ms; then their keys.
var dropScript = redis.NewScript(`
local now = redis.call('TIME')
local limit = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000) - tonumber(ARGV[1])
for i = 2, #ARGV do
  local stands = redis.call('HGET', KEYS[1], ARGV[i])
  local ends = stands and string.match(stands, '^(%d+) ')
  if ends and tonumber(ends) < limit then redis.call('HDEL', KEYS[1], ARGV[i]) end
end
return {'OK'}
`)

// Revoke adds revocations, or prolongs those that stand; one that stands with a later end stays as it is. It needs no lease:
// any control plane may do it at any time. It fails with routes.ErrTooManyRevocations where more than routes.MaxRevocations would
// stand. Where it fails in the midst some are written, and doing it again completes it.
func (w *Writer) Revoke(ctx context.Context, revocations []routes.Revocation) error {
	keys := []string{w.keys.fence(), w.keys.revocations(), w.keys.changes()}
	for some := range slices.Chunk(revocations, revocationsPerCall) {
		args := []any{randomID(), streamLength, routes.MaxRevocations}
		seen := make(map[string]bool, len(some))
		for _, r := range some {
			if err := r.Validate(); err != nil {
				return fmt.Errorf("revoke: %w", err)
			}
			key := r.Key()
			if seen[key] {
				return fmt.Errorf("revoke: %s twice", key)
			}
			seen[key] = true
			doc, err := routes.EncodeRevocation(r)
			if err != nil {
				return fmt.Errorf("revoke: %w", err)
			}
			args = append(args, key, endOf(r), doc)
		}
		reply, err := w.run(ctx, "revoke", revokeScript, keys, args...)
		switch {
		case err != nil:
			return err
		case reply[0] == replyFull:
			return fmt.Errorf("revoke: %w: %d stand", routes.ErrTooManyRevocations, routes.MaxRevocations)
		case reply[0] != replyOK:
			return fmt.Errorf("revoke: unexpected reply %q", reply)
		}
	}
	return nil
}

// endOf is Until in Unix milliseconds, rounded up.
func endOf(r routes.Revocation) int64 { return r.Until.Add(time.Millisecond - 1).UnixMilli() }

// DropRevocations removes those of the keys that ended some minutes ago. It needs no lease.
func (w *Writer) DropRevocations(ctx context.Context, ended []string) error {
	for some := range slices.Chunk(ended, revocationsPerRead) {
		args := make([]any, 0, 1+len(some))
		args = append(args, revocationGrace.Milliseconds())
		for _, key := range some {
			args = append(args, key)
		}
		if _, err := w.run(ctx, "drop revocations", dropScript, []string{w.keys.revocations()}, args...); err != nil {
			return err
		}
	}
	return nil
}

// Revocations returns all that stand, ended ones too, and the keys of those that can't be read. Those added while it reads may be
// missing: Follow tells of them.
func (r *Reader) Revocations(ctx context.Context) (all []routes.Revocation, unreadable []string, err error) {
	seen := map[string]bool{} // a hash that grows meanwhile may show a field twice
	for cursor := uint64(0); ; {
		var page *redis.ScanCmd
		err := r.gate.do(ctx, "revocations", func(ctx context.Context) error {
			page = r.client.HScan(ctx, r.keys.revocations(), cursor, "", revocationsPerRead)
			return page.Err()
		})
		if err != nil {
			return nil, nil, err
		}
		var fields []string
		fields, cursor = page.Val()
		for i := 0; i+1 < len(fields); i += 2 {
			if seen[fields[i]] {
				continue
			}
			seen[fields[i]] = true
			_, doc, _ := strings.Cut(fields[i+1], " ")
			if revocation, err := routes.DecodeRevocation([]byte(doc)); err != nil {
				unreadable = append(unreadable, fields[i])
			} else {
				all = append(all, revocation)
			}
		}
		if cursor == 0 {
			return all, unreadable, nil
		}
	}
}

// revocationEvent reads an entry about revocations; one that can't be read is a Reset.
func revocationEvent(values map[string]any) routes.Event {
	text, _ := values["revocations"].(string)
	var documents []json.RawMessage
	if err := json.Unmarshal([]byte(text), &documents); err != nil {
		return routes.Event{Reset: true}
	}
	e := routes.Event{Revocations: make([]routes.Revocation, len(documents))}
	for i, doc := range documents {
		var err error
		if e.Revocations[i], err = routes.DecodeRevocation(doc); err != nil {
			return routes.Event{Reset: true}
		}
	}
	return e
}
