"""The two Lua scripts that all workers share. Each runs whole, so that no two workers take the same place.

Only Redis' clock counts. Rates are token buckets that refill at limit / (60 + BURST) a second and hold BURST
seconds' worth: so no 60 seconds see more than the limit, however the calls fall. A caller whose place is near
takes it and waits in its thread; one whose place is further off is told when to come back. Who was told so
has a place in the queue, which keeps newcomers from taking it, and which spreads the returns.
"""

from shared.limits import BURST, PACE_DOUBLES

FORGET = 60.0  # seconds in which no reply named a limit

_COMMON = f"""
local BURST, DOUBLES, FORGET = {BURST}, {PACE_DOUBLES}, {FORGET}
local RATE, QUEUE, BREAKER, INDEX = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000

local function read(key)
  local flat, found = redis.call('HGETALL', key), {{}}
  for at = 1, #flat, 2 do found[flat[at]] = tonumber(flat[at + 1]) or flat[at + 1] end
  return found
end
local function write(key, values, ttl)
  local flat = {{}}
  for name, value in pairs(values) do
    flat[#flat + 1] = name
    flat[#flat + 1] = type(value) == 'number' and string.format('%.6f', value) or value
  end
  redis.call('HSET', key, unpack(flat))
  redis.call('EXPIRE', key, ttl)
end
local function least(a, b)
  if a and b then return math.min(a, b) end
  return a or b
end
-- where no limit is known: requests a minute after refusals that came soon after one another; it grows by
-- itself, and is forgotten
local function pace(rate)
  if not rate.pace then return nil end
  local times = 2 ^ ((now - rate.pace_at) / DOUBLES)
  if times > 16 then return nil end
  return rate.pace * times
end
-- the place in the line: not before `earliest`, and after everybody who was told a time; not later than
-- `bound` seconds after it, because what is known of a rate or an outage may have changed by then
local function line_up(id, earliest, step, bound)
  local last = redis.call('ZREVRANGE', QUEUE, 0, 0, 'WITHSCORES')
  local promised = earliest
  if last[2] and last[1] ~= id then promised = math.max(earliest, tonumber(last[2]) + step) end
  if promised > earliest + bound then
    promised = earliest + bound * (redis.call('ZCARD', QUEUE) % 20 + 1) / 20
  end
  redis.call('ZADD', QUEUE, string.format('%.6f', promised), id)
  redis.call('EXPIRE', QUEUE, 7200)
  return promised - now
end
"""

# ARGV: caller, tokens, set requests, set tokens ('': none), longest wait, probe seconds, member of the index
# -> {verdict: go | probe | later, seconds, why, seconds for which the provider has been out}
ACQUIRE = (
    _COMMON
    + """
local id, tokens = ARGV[1], tonumber(ARGV[2])
local longest, probing = tonumber(ARGV[5]), tonumber(ARGV[6])
local rate, breaker = read(RATE), read(BREAKER)
redis.call('SADD', INDEX, ARGV[7])
local known = least(tonumber(ARGV[3]), rate.learned_requests)
local requests_limit = known or pace(rate)
local tokens_limit = least(tonumber(ARGV[4]), rate.learned_tokens)
local rr = requests_limit and requests_limit / (60 + BURST)
local rt = tokens_limit and tokens_limit / (60 + BURST)
-- nobody takes, or owes, more than a minute of the limit: a provider that names one of 1 token a minute is asked
-- again soon, because only a reply can mend what it said
if rt then tokens = math.min(tokens, math.max(1, 60 * rt)) end
local step = math.max(rr and 1 / rr or 0.05, rt and tokens / rt or 0.05)

local probe = false
if breaker.open then
  local until_ = breaker.open
  if now >= until_ then
    probe = not (breaker.probe and now < breaker.probe)
    until_ = now + 2
  end
  if not probe then
    redis.call('HSET', RATE, 'seen', string.format('%.6f', now))
    redis.call('EXPIRE', RATE, 3600)
    return {'later', tostring(line_up(id, until_, 0.05, 10)), 'out', tostring(now - (breaker.since or now))}
  end
end

-- those who were told a time before mine have not come yet, though they are due; after 5 s they lost it
redis.call('ZREMRANGEBYSCORE', QUEUE, '-inf', now - 5)
local mine = tonumber(redis.call('ZSCORE', QUEUE, id) or nil)
local ahead = redis.call('ZCOUNT', QUEUE, '-inf', '(' .. string.format('%.6f', mine or (now + longest)))

local function wait_for(level, per_second, full, need)
  if not per_second then return 0, nil end
  level = math.min(full, (level or full) + (now - (rate.at or now)) * per_second)
  level = math.max(level, -60 * per_second)
  return math.max(0, (math.min(need, full) + ahead * need - level) / per_second), level
end
local wait_r, level_r = wait_for(rate.level_requests, rr, rr and math.max(1, rr * BURST), 1)
local wait_t, level_t = wait_for(rate.level_tokens, rt, rt and rt * BURST, tokens)
local cooling = math.max(0, (rate.cool or 0) - now)
local wait = math.max(cooling, wait_r, wait_t)

if wait > longest then
  redis.call('HSET', RATE, 'seen', string.format('%.6f', now))
  redis.call('EXPIRE', RATE, 3600)
  local why = cooling >= wait and 'cooling' or wait_t > wait_r and 'tokens' or 'requests'
  -- a pause that was asked for is kept; a rate may be another when a reply has told of it
  local due = now + math.max(cooling, math.min(wait, 120))
  return {'later', tostring(line_up(id, due, step, 60)), why}
end

local window = math.floor(now / 10)
local changed = {at = now, window = window, count = (rate.window == window and rate.count or 0) + 1}
if rate.window ~= window then changed.before = rate.window == window - 1 and rate.count or 0 end
if level_r then changed.level_requests = level_r - 1 end
if level_t then changed.level_tokens = level_t - tokens end
if known then changed.requests = known end
if tokens_limit then changed.tokens = tokens_limit end
write(RATE, changed, 3600)
redis.call('ZREM', QUEUE, id)
if probe then write(BREAKER, {probe = now + wait + probing}, 86400) end
return {probe and 'probe' or 'go', tostring(wait), ''}
"""
)

# ARGV: caller, outcome (ok | limited | out | none), tokens to give back, Retry-After ('': not said), learned
# requests, learned tokens, remaining requests, remaining tokens ('': not said), failures that open, window of
# failures, run, certain (1: no request can be to blame), first pause, longest pause
# -> {breaker: closed | open | opened | mended, seconds until this caller should come back}
REPORT = (
    _COMMON
    + """
local id, outcome, refund = ARGV[1], ARGV[2], tonumber(ARGV[3])
local rate, breaker = read(RATE), read(BREAKER)
local changed = {seen = now}
local function level(name, back, remaining)
  local value = rate[name] and rate[name] + back
  if value and remaining then value = math.min(value, remaining) end
  if value then changed[name] = value end
end
level('level_requests', outcome == 'none' and 1 or 0, tonumber(ARGV[7]))
level('level_tokens', refund, tonumber(ARGV[8]))
-- a limit holds for as long as replies name it: a server that has named one once, and answers without since then,
-- would else be held to it for ever
local function learn(kind, limit)
  local learned, said = 'learned_' .. kind, 'said_' .. kind
  if limit then
    changed[learned], changed[said] = limit, now
  elseif outcome == 'ok' and rate[learned] and now - (rate[said] or 0) > FORGET then
    redis.call('HDEL', RATE, learned, said, kind)
  end
end
learn('requests', tonumber(ARGV[5]))
learn('tokens', tonumber(ARGV[6]))

local seconds, verdict = 0, breaker.open and 'open' or 'closed'
if outcome == 'limited' then
  local streak = (rate.streak or 0) + 1
  local doubled = 2 ^ math.min(streak - 1, 7)
  local pause = tonumber(ARGV[4]) or math.min(30, doubled)
  -- "at once", or a date that has passed: believed once, and less each time that it was not so
  if pause < 1 then pause = math.max(pause, math.min(30, doubled / 4)) end
  -- calls that were under way when the first was refused are refused, too: that is no news
  if now > (rate.cool or 0) then
    changed.streak, changed.refused = streak, now
    changed.level_requests = math.min(changed.level_requests or 0, 0)
    if rate.refused and now - rate.refused < pause + 60 then
      local elapsed = math.max(1, now - (rate.window or 0) * 10)
      local lately = math.max((rate.before or 0) * 6, (rate.count or 0) * 60 / elapsed)
      changed.pace, changed.pace_at = math.max(60, math.min(lately, pace(rate) or lately) * 0.7), now + pause
    end
  end
  changed.cool = math.max(rate.cool or 0, now + pause)
  seconds = line_up(id, changed.cool, 0.05, 10)
elseif outcome == 'ok' then
  changed.streak = 0
end
write(RATE, changed, 3600)

if outcome == 'ok' or outcome == 'limited' then
  if breaker.open then verdict = 'mended' end
  if breaker.open or breaker.failures then redis.call('DEL', BREAKER) end
elseif outcome == 'none' then
  redis.call('HDEL', BREAKER, 'probe')
elseif outcome == 'out' then
  local fresh = breaker.since and now - breaker.since <= tonumber(ARGV[10])
  local failures = (fresh or breaker.open) and breaker.failures or 0
  local first = failures == 0
  local another = not first and (breaker.mixed == 1 or breaker.run ~= 'r' .. ARGV[11])
  local values = {failures = failures + 1, mixed = (another or ARGV[12] == '1') and 1 or 0}
  if first then values.since, values.run = now, 'r' .. ARGV[11] end
  if breaker.open and now >= breaker.open then
    values.pause = math.min(tonumber(ARGV[14]), (breaker.pause or tonumber(ARGV[13])) * 2)
    values.open, values.probe, verdict = now + values.pause, 0, 'open'
  elseif not breaker.open and failures + 1 >= tonumber(ARGV[9]) and values.mixed == 1 then
    values.pause = tonumber(ARGV[13])
    values.open, values.probe, verdict = now + values.pause, 0, 'opened'
  end
  write(BREAKER, values, 86400)
  local opens = values.open or breaker.open
  if opens then seconds = line_up(id, math.max(opens, now), 0.05, 10) end
end
return {verdict, tostring(seconds)}
"""
)
