"""The Lua scripts. Every operation on a chain is one script, so it is atomic.

A chain is one hash. A tombstone next to it outlives it and says when it ended. Both keys carry the
hash tag `{id}`, so they share a slot of a Redis Cluster. Times are the server's, in ms.

    owner plan created        who created the chain, and its plan
    step state                the newest committed state
    base_step base_state      the state from before the last call
    fence                     counts the leases; part of every token
    token until last          token of the present lease and its end; token that was released last

A token is "<fence>:<nonce>". The fence grows with every new lease, so no two leases share a token,
and a holder whose lease was taken over can never write again, however late its commit arrives.

Scripts reply with a list whose first word is the result: ok, there, busy, stale, unknown or gone.
A client sends a script again when the reply was lost, so running a script twice must be harmless.
The nonce tells a repetition from another caller's operation. All commands exist in Redis 6.2.
"""

import hashlib
from dataclasses import dataclass

# ARGV of every script begins with three lifetimes in ms: chain, tombstone after that, lease.
_COMMON = """
local chain, tombstone = KEYS[1], KEYS[2]
local life, after, lease = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- Lua would write large numbers as 1.7e+12.
local function number(x) return string.format('%.0f', x) end

local function write_tombstone(owner, expires, ended_by, lasts)
  if after == 0 then redis.call('DEL', tombstone) return end
  local text = cjson.encode({owner = owner, expires = expires, ended_by = ended_by})
  redis.call('SET', tombstone, text, 'PX', number(lasts))
end

-- The tombstone is written in advance, because no script runs when the chain expires.
local function keep_alive(owner)
  redis.call('PEXPIRE', chain, number(life))
  write_tombstone(owner, now + life, '', life + after)
end

local function gone() return {'gone', redis.call('GET', tombstone)} end

local function may_use(asked, owner) return asked == '*' or asked == '=' .. owner end

local function record(token)
  local f = redis.call('HMGET', chain, 'owner', 'plan', 'step', 'state', 'base_step',
    'base_state', 'created', 'until')
  local left = math.max(0, tonumber(f[8]) - now)
  f[8] = number(now + redis.call('PTTL', chain))  -- reply with the expiry instead of `until`
  return {'ok', token, number(left), unpack(f)}
end
"""

# ARGV: nonce owner plan step state
_CREATE = """
local nonce, owner, plan, step, state = unpack(ARGV, 4)
local token = '1:' .. nonce
if redis.call('EXISTS', chain) == 1 then
  -- Our own nonce: this is a repetition, and the chain is ours.
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
if not may_use(asked, owner) then return {'unknown'} end
if token ~= fence .. ':' .. nonce then  -- else a repetition: the lease is ours already
  if token ~= '' and tonumber(till) > now then return {'busy', number(till - now)} end
  -- The lease is free or has expired. A new fence makes the old holder's token invalid.
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
if not may_use(ARGV[4], owner) then return {'unknown'} end
return record('')
"""

# ARGV: token before release step state [base_step base_state]
_COMMIT = """
local token, before, release, step, state, base_step, base_state = unpack(ARGV, 4)
local f = redis.call('HMGET', chain, 'owner', 'step', 'token', 'last')
local owner, stored, holder, last = f[1], f[2], f[3], f[4]
if not owner then return gone() end
if holder ~= token then
  -- Fencing: another call took the lease over, and this one must not write. The exception is a
  -- repeated commit that released the lease itself: its step is stored, and nobody came since.
  if release == '1' and last == token and stored == step then return {'ok'} end
  return {'stale', stored, 'lost'}
end
if stored == before then
  redis.call('HSET', chain, 'step', step, 'state', state)
  if base_step then redis.call('HSET', chain, 'base_step', base_step, 'base_state', base_state) end
elseif stored ~= step then  -- equal steps: a repetition, and the state is stored already
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
-- An expired lease can be renewed as long as nobody else has acquired it: the token is still ours.
redis.call('HSET', chain, 'until', number(now + lease))
keep_alive(f[1])
return {'ok'}
"""

# ARGV: token
_RELEASE = """
local token = ARGV[4]
if redis.call('HGET', chain, 'token') == token then  -- never release another call's lease
  redis.call('HSET', chain, 'token', '', 'until', '0', 'last', token)
end
return {'ok'}
"""

# ARGV: asked nonce
_DELETE = """
local asked, nonce = ARGV[4], ARGV[5]
local owner = redis.call('HGET', chain, 'owner')
if not owner then
  local text = redis.call('GET', tombstone)
  if text and cjson.decode(text).ended_by == nonce then return {'ok'} end  -- a repetition
  return gone()
end
if not may_use(asked, owner) then return {'unknown'} end
redis.call('UNLINK', chain)
write_tombstone(owner, now, nonce, after)
return {'ok'}
"""


@dataclass(frozen=True)
class Script:
    """The text of a script, and its SHA-1, by which a server that has run it knows it."""

    text: str
    sha: str


def _make_script(body: str) -> Script:
    text = _COMMON + body
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


CREATE = _make_script(_CREATE)
ACQUIRE = _make_script(_ACQUIRE)
READ = _make_script(_READ)
COMMIT = _make_script(_COMMIT)
RENEW = _make_script(_RENEW)
RELEASE = _make_script(_RELEASE)
DELETE = _make_script(_DELETE)
