"""Every operation on a chain as one Lua script, so that it happens wholly or not at all.

A chain is one hash, and beside it stands a note that outlives it and says when it ended. Both
keys carry the hash tag `{id}`, so they share a slot of a Redis Cluster. Time is the server's.

    owner plan created        who made it, and what for
    step state                the newest committed state
    base_step base_state      from before the last call
    fence                     rises with every lease; part of its token
    token until last          who may write, until when (ms), and who gave that up last

Scripts answer a list whose first word says how it went: ok, there, busy, stale, unknown, gone.
A client may send a script twice, because an answer got lost: the second run must be harmless.
Nothing here is newer than Redis 6.2.
"""

import hashlib
from dataclasses import dataclass

# Each begins with ARGV: a chain's life, its note's life after that, a lease's life; all in ms.
_COMMON = """
local chain, note = KEYS[1], KEYS[2]
local life, after, lease = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function number(x) return string.format('%.0f', x) end

local function leave_note(owner, expires, ended_by, lasts)
  if after == 0 then redis.call('DEL', note) return end
  local text = cjson.encode({owner = owner, expires = expires, ended_by = ended_by})
  redis.call('SET', note, text, 'PX', number(lasts))
end

local function keep_alive(owner)
  redis.call('PEXPIRE', chain, number(life))
  leave_note(owner, now + life, '', life + after)
end

local function gone() return {'gone', redis.call('GET', note)} end

local function may_see(asked, owner) return asked == '*' or asked == '=' .. owner end

local function record(token)
  local f = redis.call('HMGET', chain, 'owner', 'plan', 'step', 'state', 'base_step',
    'base_state', 'created', 'until')
  local left = math.max(0, tonumber(f[8]) - now)
  f[8] = number(now + redis.call('PTTL', chain))
  return {'ok', token, number(left), unpack(f)}
end
"""

# ARGV: nonce owner plan step state
_CREATE = """
local nonce, owner, plan, step, state = unpack(ARGV, 4)
local token = '1:' .. nonce
if redis.call('EXISTS', chain) == 1 then
  if redis.call('HGET', chain, 'token') == token then return {'ok', token} end
  return {'there'}
end
redis.call('HSET', chain, 'owner', owner, 'plan', plan, 'created', number(now),
  'step', step, 'state', state, 'base_step', step, 'base_state', state,
  'fence', '1', 'token', token, 'until', number(now + lease), 'last', '')
keep_alive(owner)
return {'ok', token}
"""

# ARGV: asked nonce
_ACQUIRE = """
local asked, nonce = ARGV[4], ARGV[5]
local f = redis.call('HMGET', chain, 'owner', 'fence', 'token', 'until')
local owner, fence, token, till = f[1], f[2], f[3], f[4]
if not owner then return gone() end
if not may_see(asked, owner) then return {'unknown'} end
if token ~= fence .. ':' .. nonce then
  if token ~= '' and tonumber(till) > now then return {'busy', number(till - now)} end
  fence = number(fence + 1)
  token = fence .. ':' .. nonce
end
redis.call('HSET', chain, 'fence', fence, 'token', token, 'until', number(now + lease))
keep_alive(owner)
return record(token)
"""

# ARGV: asked
_READ = """
local owner = redis.call('HGET', chain, 'owner')
if not owner then return gone() end
if not may_see(ARGV[4], owner) then return {'unknown'} end
return record('')
"""

# ARGV: token before release step state [base_step base_state]
_COMMIT = """
local token, before, release, step, state, base_step, base_state = unpack(ARGV, 4)
local f = redis.call('HMGET', chain, 'owner', 'step', 'token', 'last')
local owner, stored, holder, last = f[1], f[2], f[3], f[4]
if not owner then return gone() end
if holder ~= token then
  if release == '1' and last == token and stored == step then return {'ok'} end
  return {'stale', stored, 'lost'}
end
if stored == before then
  redis.call('HSET', chain, 'step', step, 'state', state)
  if base_step then redis.call('HSET', chain, 'base_step', base_step, 'base_state', base_state) end
elseif stored ~= step then
  return {'stale', stored, 'moved'}
end
if release == '1' then
  redis.call('HSET', chain, 'token', '', 'until', '0', 'last', token)
else
  redis.call('HSET', chain, 'until', number(now + lease))
end
keep_alive(owner)
return {'ok'}
"""

# ARGV: token
_RENEW = """
local f = redis.call('HMGET', chain, 'owner', 'step', 'token')
if not f[1] then return gone() end
if f[3] ~= ARGV[4] then return {'stale', f[2], 'lost'} end
redis.call('HSET', chain, 'until', number(now + lease))
keep_alive(f[1])
return {'ok'}
"""

# ARGV: token
_RELEASE = """
local token = ARGV[4]
if redis.call('HGET', chain, 'token') == token then
  redis.call('HSET', chain, 'token', '', 'until', '0', 'last', token)
end
return {'ok'}
"""

# ARGV: asked nonce
_DELETE = """
local asked, nonce = ARGV[4], ARGV[5]
local owner = redis.call('HGET', chain, 'owner')
if not owner then
  local text = redis.call('GET', note)
  if text and cjson.decode(text).ended_by == nonce then return {'ok'} end
  return gone()
end
if not may_see(asked, owner) then return {'unknown'} end
redis.call('UNLINK', chain)
leave_note(owner, now, nonce, after)
return {'ok'}
"""


@dataclass(frozen=True)
class Script:
    """A script's text and the name under which a server remembers it."""

    text: str
    sha: str


def _script(body: str) -> Script:
    text = _COMMON + body
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


CREATE, ACQUIRE, READ = _script(_CREATE), _script(_ACQUIRE), _script(_READ)
COMMIT, RENEW, RELEASE = _script(_COMMIT), _script(_RENEW), _script(_RELEASE)
DELETE = _script(_DELETE)
