package redisstore

import "github.com/redis/go-redis/v9"

// replyNew says that a member was not there before.
const replyNew = "NEW"

// luaNow sets ms, the time in milliseconds, and text, which makes a number of that size readable again.
const luaNow = `
local now = redis.call('TIME')
local ms = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
local function text(n) return string.format('%.0f', n) end
`

// touchScript makes a member of a set live until its life has passed from now, or as long as it does already, and forgets those
// whose life is over.
//
// KEYS 1 set; ARGV 1 member, 2 life in ms, 3 how many members it may have (0: any number).
var touchScript = redis.NewScript(luaNow + `
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(ms))
local stands = redis.call('ZSCORE', KEYS[1], ARGV[1])
local most, ends = tonumber(ARGV[3]), ms + tonumber(ARGV[2])
if not stands and most > 0 and redis.call('ZCARD', KEYS[1]) >= most then return {'FULL'} end
if not stands or tonumber(stands) < ends then redis.call('ZADD', KEYS[1], text(ends), ARGV[1]) end
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
redis.call('PEXPIREAT', KEYS[1], text(tonumber(last[2])))
if stands then return {'OK'} end
return {'NEW'}
`)

// luaEntries reads a record: f[i] is a field, f[i + 1] what stands there. What can't be read has no expires, and stays until its key
// goes.
const luaEntries = luaNow + `
local f = redis.call('HGETALL', KEYS[1])
local function entry(value) return string.match(value, '^(%d+) (%d+) (%d+) (%a+) (.*)$') end
`

// ownScript writes an entry of a record, if it may. It returns the record as it stands then, fields and values, unless the entry is
// minted.
//
// KEYS 1 record; ARGV 1 source, 2 host/principal, 3 backend, 4 life in ms, 5 when it was made, in ms (0: now), 6 details, 7 how many entries
// the record may have.
//
// An entry that can't be read refuses a claim as one of somebody else does: a later version may have written it.
var ownScript = redis.NewScript(luaEntries + `
local own, source, life, created, details = ARGV[2] .. '/' .. ARGV[3], ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
if created == 0 then created = ms end
local ends = ms + life
local reply, live, last, refused, stands = {'OK'}, 0, ends, false, false
for i = 1, #f, 2 do
  local expires, lives, made, from, what = entry(f[i + 1])
  if expires and tonumber(expires) <= ms then
    redis.call('HDEL', KEYS[1], f[i])
  else
    live = live + 1
    if expires then last = math.max(last, tonumber(expires)) end
    if f[i] == own then
      stands = true
      if expires then
        if (from == 'mint' and source ~= 'mint') or (from == source and tonumber(made) > created) then
          source, created, details = from, tonumber(made), what
        end
        life, ends = math.max(life, tonumber(lives)), math.max(ends, tonumber(expires))
      end
    elseif ARGV[1] ~= 'mint' then
      table.insert(reply, f[i])
      table.insert(reply, f[i + 1])
      if string.match(f[i], '[^/]*$') == ARGV[3] then
        refused = refused or from ~= 'probe'
      end
    end
  end
end
if not stands then
  if refused then return reply end
  if live >= tonumber(ARGV[7]) then return {'FULL'} end
end
local value = table.concat({text(ends), text(life), text(created), source, details}, ' ')
redis.call('HSET', KEYS[1], own, value)
redis.call('PEXPIREAT', KEYS[1], text(last))
if ARGV[1] == 'mint' then return {'OK'} end
table.insert(reply, own)
table.insert(reply, value)
return reply
`)

// lookScript returns the live entries of a record, and prolongs those of the principal, and shared ones, that have less than half of
// their life left. Its reply begins with the longest life that it prolonged of each kind (0: none). Where Redis refuses to write, for
// want of memory say, it reads all the same.
//
// KEYS 1 record; ARGV 1 host/principal, 2 host/*.
var lookScript = redis.NewScript(luaEntries + `
local prolonged, last, reply = {[ARGV[2]] = 0, [ARGV[1]] = 0}, 0, {'OK', '0', '0'}
for i = 1, #f, 2 do
  local expires, life, made, from, what = entry(f[i + 1])
  local value = f[i + 1]
  if expires then
    local ends, lives, principal = tonumber(expires), tonumber(life), string.match(f[i], '^(.*)/')
    if ends > ms and principal and prolonged[principal] and ends - ms < lives / 2 then
      local longer = table.concat({text(ms + lives), life, made, from, what}, ' ')
      local done = redis.pcall('HSET', KEYS[1], f[i], longer)
      if type(done) == 'number' then
        ends, value = ms + lives, longer
        prolonged[principal] = math.max(prolonged[principal], lives)
      end
    end
    last = math.max(last, ends)
    if ends <= ms then value = nil end
  end
  if value then
    table.insert(reply, f[i])
    table.insert(reply, value)
  end
end
if prolonged[ARGV[2]] > 0 or prolonged[ARGV[1]] > 0 then redis.call('PEXPIREAT', KEYS[1], text(last)) end
reply[2], reply[3] = text(prolonged[ARGV[1]]), text(prolonged[ARGV[2]])
return reply
`)

// membersScript returns how many live members a set has, and those that end last, with the time.
//
// KEYS 1 set; ARGV 1 how many of them at most.
var membersScript = redis.NewScript(luaNow + `
local above = '(' .. text(ms)
local members = {}
if ARGV[1] ~= '0' then members = redis.call('ZREVRANGEBYSCORE', KEYS[1], '+inf', above, 'LIMIT', 0, ARGV[1]) end
table.insert(members, 1, text(redis.call('ZCOUNT', KEYS[1], above, '+inf')))
table.insert(members, 1, text(ms))
table.insert(members, 1, 'OK')
return members
`)
