package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// The scripts. All keys come through KEYS, all of one slot; time is Redis TIME and nothing else; numbers of any size are
// compared as decimal text, since Lua's are doubles. Every script may run twice with the same arguments (a reply got lost, the
// client asks again): the second run changes nothing and answers the same.
//
// A reply is a list: a word, then what belongs to it.
const (
	replyOK     = "OK"
	replyFenced = "FENCED"
	replyHeld   = "HELD"   // owner
	replyConfig = "CONFIG" // the config_version that stands
	replyStale  = "STALE"  // position of the change, from 1; what stands: epoch, revision
)

// luaBelow compares decimal numbers without sign or leading zeros.
const luaBelow = `
local function below(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end
`

// luaGuard lets only the holder of the fence pass, and sets sequence.
//
// KEYS 1 fence, 2 lease; ARGV 1 incarnation, 2 epoch, 3 the highest sequence that the writer was told, 4 a fresh random id.
//
// Where less stands than the writer was told, Redis lost its latest writes (an old snapshot was loaded, a replica that lagged
// was promoted). Then what stands is from another time: it gets another incarnation, is no longer complete, and nobody leads.
const luaGuard = luaBelow + `
local fence = redis.call('HMGET', KEYS[1], 'incarnation', 'epoch', 'sequence', 'released')
if fence[1] ~= ARGV[1] then return {'FENCED'} end
local epoch, sequence = fence[2] or '0', fence[3] or '0'
if below(epoch, ARGV[2]) or (epoch == ARGV[2] and below(sequence, ARGV[3])) then
  redis.call('HSET', KEYS[1], 'incarnation', ARGV[4], 'released', '1')
  redis.call('HDEL', KEYS[1], 'complete')
  redis.call('DEL', KEYS[2])
  return {'FENCED'}
end
if epoch ~= ARGV[2] then return {'FENCED'} end
`

const luaReleased = `
if fence[4] then return {'FENCED'} end
`

// acquireScript takes the lease if it is free.
//
// KEYS 1 fence, 2 lease; ARGV 1 owner, 2 token (random, one a call of Acquire), 3 TTL in ms, 4 config_version, 5 a fresh random
// id; what the writer was told last: 6 incarnation, 7 epoch, 8 sequence.
//
// The epoch is the time in milliseconds, or one more than the last epoch where that is higher: it grows even if Redis came back
// with an old snapshot that forgot some epochs.
var acquireScript = redis.NewScript(luaBelow + `
local lease = redis.call('HMGET', KEYS[2], 'owner', 'token')
local fence = redis.call('HMGET', KEYS[1], 'incarnation', 'epoch', 'sequence', 'config')
if lease[2] == ARGV[2] then return {'OK', fence[1], fence[2], fence[3]} end
if lease[1] then return {'HELD', lease[1]} end
local config = fence[4] or '0'
if below(ARGV[4], config) then return {'CONFIG', config} end
local incarnation, epoch, sequence = fence[1] or ARGV[5], fence[2] or '0', fence[3] or '0'
if incarnation == ARGV[6] and (below(epoch, ARGV[7]) or below(sequence, ARGV[8])) then incarnation = ARGV[5] end
if incarnation == ARGV[5] then redis.call('HDEL', KEYS[1], 'complete') end
local now = redis.call('TIME')
epoch = string.format('%.0f', math.max(tonumber(epoch) + 1, tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)))
redis.call('HSET', KEYS[1], 'incarnation', incarnation, 'epoch', epoch, 'sequence', sequence, 'config', ARGV[4])
redis.call('HDEL', KEYS[1], 'released')
redis.call('HSET', KEYS[2], 'owner', ARGV[1], 'epoch', epoch, 'token', ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return {'OK', incarnation, epoch, sequence}
`)

// renewScript prolongs the lease. One that ran out is taken up again: the fence says that nobody else led since.
//
// After the guard's, ARGV 5 owner, 6 TTL in ms.
var renewScript = redis.NewScript(luaGuard + luaReleased + `
redis.call('HSET', KEYS[2], 'owner', ARGV[5], 'epoch', ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[6])
return {'OK', sequence}
`)

// releaseScript gives the lease back. What was released can't write any more.
var releaseScript = redis.NewScript(luaGuard + `
redis.call('HSET', KEYS[1], 'released', '1')
redis.call('DEL', KEYS[2])
return {'OK', sequence}
`)

// completeScript says that the leader has published every host.
var completeScript = redis.NewScript(luaGuard + luaReleased + `
redis.call('HSET', KEYS[1], 'complete', '1')
return {'OK', sequence}
`)

// publishScript writes changes, all of them or none.
//
// After the guard's, KEYS 3 index, 4 catalogs, 5 changes, then one key a catalog, then three a host (its table, its list, its
// history). ARGV 5 length of the stream, 6 number of catalogs, 7 number of hosts, 8 length of a history; then a catalog: id,
// digest, kept (0: remove it), document; then a host: id, revision, digest, removed (0 or 1), table, list, what the history
// keeps (empty: nothing).
var publishScript = redis.NewScript(luaGuard + luaReleased + `
local catalogs, hosts = tonumber(ARGV[6]), tonumber(ARGV[7])
local first = 9 + 4 * catalogs
local now = redis.call('TIME')
local ms = string.format('%.0f', tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000))
local repeated = {}
for i = 0, hosts - 1 do
  local a = first + 7 * i
  local line = redis.call('HGET', KEYS[3], ARGV[a])
  if line then
    local inc, ep, rev, removed, digest = string.match(line, '^(%S+) (%d+) (%d+) %d+ ([01]) (.*)$')
    if inc == ARGV[1] then
      local same = ep == ARGV[2] and rev == ARGV[a + 1]
      if same and removed == ARGV[a + 3] and digest == ARGV[a + 2] then
        repeated[i] = true
      elseif same or below(ARGV[2], ep) or (ep == ARGV[2] and below(ARGV[a + 1], rev)) then
        return {'STALE', tostring(i + 1), ep, rev}
      end
    end
  end
end
for i = 0, catalogs - 1 do
  local a = 9 + 4 * i
  if ARGV[a + 2] == '0' then
    redis.call('DEL', KEYS[6 + i])
    redis.call('HDEL', KEYS[4], ARGV[a])
  else
    redis.call('SET', KEYS[6 + i], ARGV[a + 3])
    redis.call('HSET', KEYS[4], ARGV[a], ARGV[a + 1])
  end
end
for i = 0, hosts - 1 do
  if not repeated[i] then
    local a, k = first + 7 * i, 6 + catalogs + 3 * i
    local removed = ARGV[a + 3]
    if removed == '1' then
      redis.call('DEL', KEYS[k], KEYS[k + 1], KEYS[k + 2])
    else
      redis.call('SET', KEYS[k], ARGV[a + 4])
      redis.call('SET', KEYS[k + 1], ARGV[a + 5])
      if ARGV[a + 6] ~= '' then
        redis.call('LPUSH', KEYS[k + 2],
          table.concat({ARGV[1], ARGV[2], ARGV[a + 1], ms, ARGV[a + 2]}, ' ') .. '\n' .. ARGV[a + 6])
        redis.call('LTRIM', KEYS[k + 2], 0, tonumber(ARGV[8]) - 1)
      end
    end
    sequence = string.format('%.0f', redis.call('HINCRBY', KEYS[1], 'sequence', 1))
    redis.call('HSET', KEYS[3], ARGV[a],
      table.concat({ARGV[1], ARGV[2], ARGV[a + 1], sequence, removed, ARGV[a + 2]}, ' '))
    redis.call('XADD', KEYS[5], 'MAXLEN', '~', ARGV[5], '*',
      'kind', 'host', 'incarnation', ARGV[1], 'sequence', sequence,
      'host', ARGV[a], 'epoch', ARGV[2], 'revision', ARGV[a + 1], 'removed', removed)
  end
end
return {'OK', sequence}
`)

// decideScript stores or takes back a decision, if what stands is what the decider read. It needs no lease: operators decide
// on any control plane.
//
// KEYS 1 fence, 2 decisions, 3 the decision, 4 changes; ARGV 1 subject, 2 digest of what was read (empty: nothing), 3 digest of
// the decision (empty: take it back), 4 document, 5 length of the stream.
var decideScript = redis.NewScript(`
local stands = redis.call('HGET', KEYS[2], ARGV[1]) or ''
if stands == ARGV[3] then return {'OK'} end
if stands ~= ARGV[2] then return {'CONFLICT'} end
if ARGV[3] == '' then
  redis.call('DEL', KEYS[3])
  redis.call('HDEL', KEYS[2], ARGV[1])
else
  redis.call('SET', KEYS[3], ARGV[4])
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
end
local incarnation = redis.call('HGET', KEYS[1], 'incarnation')
if incarnation then
  local sequence = string.format('%.0f', redis.call('HINCRBY', KEYS[1], 'sequence', 1))
  redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[5], '*',
    'kind', 'decision', 'incarnation', incarnation, 'sequence', sequence)
end
return {'OK'}
`)

// statusScript stores what a dataplane says of itself and forgets the ones that fell silent.
//
// KEYS 1 dataplanes, 2 the dataplane's own; ARGV 1 its name, 2 TTL in ms, 3 document.
var statusScript = redis.NewScript(`
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[2])
local now = redis.call('TIME')
local ms = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
redis.call('ZADD', KEYS[1], string.format('%.0f', ms + tonumber(ARGV[2])), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', ms))
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', tonumber(last[2])))
return {'OK'}
`)

// run runs a script by its digest, or by its text where Redis does not know it (yet, or any more). The reply has at least one
// word.
func (s *store) run(ctx context.Context, op string, script *redis.Script, keys []string, args ...any) ([]string, error) {
	return s.runFor(ctx, s.gate.timeout, op, script, keys, args...)
}

func (s *store) runFor(ctx context.Context, timeout time.Duration, op string, script *redis.Script, keys []string, args ...any) ([]string, error) {
	var cmd *redis.Cmd
	err := s.gate.doFor(ctx, timeout, op, func(ctx context.Context) error {
		cmd = script.EvalSha(ctx, s.client, keys, args...)
		if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			cmd = script.Eval(ctx, s.client, keys, args...)
		}
		return cmd.Err()
	})
	if err != nil {
		return nil, err
	}
	reply, err := cmd.StringSlice()
	if err != nil || len(reply) == 0 {
		return nil, fmt.Errorf("redis: %s: unexpected reply %v", op, cmd.Val())
	}
	return reply, nil
}
