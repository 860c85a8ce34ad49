-- Limits that several gateways share: every call is all or none, whoever else calls.
--
-- A quantity is a pair, high * BASE + low: a double holds neither pico-units nor parts of nanoseconds.
-- The first key has what one gateway reserved and hasn't settled, by the reservation's name; the
-- others are limits. The argument is the call as MessagePack. The law of rates is gateway/limits/gcra.py's.

local BASE = 4503599627370496 -- 2^52: the sum of two lows is exact
local MAX_MARKS = 32
local DAY_MS = 86400000
local SPARE_MS = 60000

local function add(ah, al, bh, bl)
  local high, low = ah + bh, al + bl
  if low >= BASE then return high + 1, low - BASE end
  return high, low
end

local function sub(ah, al, bh, bl)
  local high, low = ah - bh, al - bl
  if low < 0 then return high - 1, low + BASE end
  return high, low
end

local function less(ah, al, bh, bl)
  return ah < bh or (ah == bh and al < bl)
end

local function positive(high, low)
  if high < 0 then return 0, 0 end
  return high, low
end

local function pair(number)
  local high = math.floor(number / BASE)
  return high, number - high * BASE
end

local function load(key)
  local found = redis.call('GET', key)
  return found and cmsgpack.unpack(found)
end

-- A rate: when all that was taken will have recovered, in units of 1/amount ns, and the least that
-- was taken since each mark for which somebody has a reservation.

local rate = {}

local HEAD = 9 -- numbers of a state before its marks, each of which has three

local function unpacked(flat)
  local state = {high = flat[1], low = flat[2], amount = flat[3], period = flat[4], now_high = flat[5],
    now_low = flat[6], at_us = flat[7], held = flat[8], last = flat[9], marks = {}, highs = {}, lows = {}}
  for at = 1, (#flat - HEAD) / 3 do
    local from = HEAD + 3 * at
    state.marks[at], state.highs[at], state.lows[at] = flat[from - 2], flat[from - 1], flat[from]
  end
  return state
end

local function packed(state)
  local flat = {state.high, state.low, state.amount, state.period, state.now_high, state.now_low,
    state.at_us, state.held, state.last}
  for at, mark in ipairs(state.marks) do
    local from = HEAD + 3 * at
    flat[from - 2], flat[from - 1], flat[from] = mark, state.highs[at], state.lows[at]
  end
  return cmsgpack.pack(flat)
end

local function rescaled(state, one)
  -- Another amount or period: what was taken stays taken; what is reserved isn't given back.
  local high, low = sub(state.high, state.low, state.now_high, state.now_low)
  local gone = math.max(0, one.at_us - state.at_us - 1) * 1000 * state.amount
  local ahead = math.max(0, high * BASE + low - gone)
  high, low = pair(math.ceil(ahead / state.period * one.period))
  state.high, state.low = add(high, low, one.now_high, one.now_low)
  state.amount, state.period = one.amount, one.period
  if state.marks[1] then
    state.marks, state.highs, state.lows = {state.marks[1]}, {0}, {0}
  end
end

function rate.level(one)
  local found = load(one.key)
  local state = unpacked(found or {0, 0, one.amount, one.period, 0, 0, 0, 0, 0})
  if state.amount ~= one.amount or state.period ~= one.period then
    rescaled(state, one)
  end
  one.state = state
  return positive(sub(state.high, state.low, one.now_high, one.now_low))
end

local function see(state, high, low)
  local marks, highs, lows, mark = state.marks, state.highs, state.lows, nil
  local last = #marks
  while last > 0 and not less(highs[last], lows[last], high, low) do
    mark = marks[last]
    marks[last], highs[last], lows[last] = nil, nil, nil
    last = last - 1
  end
  if mark then
    marks[last + 1], highs[last + 1], lows[last + 1] = mark, high, low
  end
end

local function thin(state)
  -- Two neighbours share the lower of their levels.
  local marks, highs, lows = {}, {}, {}
  for at = 1, #state.marks, 2 do
    marks[#marks + 1] = state.marks[at]
    highs[#highs + 1], lows[#lows + 1] = state.highs[at], state.lows[at]
  end
  state.marks, state.highs, state.lows = marks, highs, lows
end

local function save(one, high, low)
  -- When it has recovered there is nothing to remember; the gateways' clock isn't the store's.
  local state = one.state
  state.high, state.low = add(one.now_high, one.now_low, high, low)
  state.now_high, state.now_low, state.at_us = one.now_high, one.now_low, one.at_us
  local recovers_ms = math.ceil((high * BASE + low) / one.amount / 1e6)
  redis.call('SET', one.key, packed(state), 'PX', recovers_ms + SPARE_MS)
end

function rate.take(one, high, low)
  local state = one.state
  see(state, high, low)
  high, low = add(high, low, one.high, one.low)
  local mark = 0
  if one.lasting then
    mark = math.max(state.last + 1, one.at_us)
    state.last, state.held = mark, state.held + 1
    state.marks[#state.marks + 1] = mark
    state.highs[#state.highs + 1], state.lows[#state.lows + 1] = high, low
    if #state.marks > MAX_MARKS then thin(state) end
  end
  save(one, high, low)
  return mark
end

local function give_back(state, mark, high, low, amount_high, amount_low)
  -- No more than the least that was taken since; the rest has recovered already.
  local marks, highs, lows = state.marks, state.highs, state.lows
  local at = #marks
  while at > 0 and marks[at] > mark do at = at - 1 end
  if at == 0 then return high, low end -- it was forgotten meanwhile: everything had recovered
  local back_high, back_low = amount_high, amount_low
  if less(highs[at], lows[at], back_high, back_low) then
    back_high, back_low = highs[at], lows[at]
  end
  for later = at, #marks do
    highs[later], lows[later] = sub(highs[later], lows[later], back_high, back_low)
  end
  local first = at
  while first > 1 and not less(highs[first - 1], lows[first - 1], highs[at], lows[at]) do
    first = first - 1
  end
  highs[first], lows[first] = highs[at], lows[at]
  for _ = first + 1, at do
    table.remove(marks, first + 1)
    table.remove(highs, first + 1)
    table.remove(lows, first + 1)
  end
  return sub(high, low, back_high, back_low)
end

function rate.settle(one, mark)
  local high, low = rate.level(one)
  local state = one.state
  see(state, high, low)
  if one.more then
    high, low = add(high, low, one.high, one.low)
  else
    high, low = give_back(state, mark, high, low, one.high, one.low)
  end
  state.held = state.held - 1
  if state.held <= 0 then
    state.held, state.marks, state.highs, state.lows = 0, {}, {}, {}
  end
  save(one, high, low)
end

-- A budget: what is charged in the period that its key names. Where the store doesn't know, it is
-- what the gateway knows.

local budget = {}

function budget.level(one)
  one.state = load(one.key)
  if one.state then return one.state[1], one.state[2] end
  return one.floor_high, one.floor_low
end

function budget.take(one, high, low)
  local charged = cmsgpack.pack({add(high, low, one.high, one.low)})
  redis.call('SET', one.key, charged, 'PX', one.keep_ms)
  return 0
end

function budget.settle(one)
  local high, low = budget.level(one)
  if not one.state then return end
  if one.more then
    high, low = add(high, low, one.high, one.low)
  else
    high, low = positive(sub(high, low, one.high, one.low))
  end
  redis.call('SET', one.key, cmsgpack.pack({high, low}), 'KEEPTTL')
end

-- Slots: how many each gateway has, for as long as it says that it lives.

local slots = {}

local function lease(one, call, count)
  redis.call('HSET', one.key, call.epoch, count .. ' ' .. call.now_ms + call.lease_ms)
  redis.call('PEXPIRE', one.key, 10 * call.lease_ms)
end

function slots.level(one, call)
  local taken, found = 0, redis.call('HGETALL', one.key)
  one.own = 0
  for at = 1, #found, 2 do
    local count, ends = string.match(found[at + 1], '(%d+) (%d+)')
    if found[at] == call.epoch then
      one.own = tonumber(count)
      taken = taken + one.own
    elseif tonumber(ends) > call.now_ms then
      taken = taken + tonumber(count)
    else
      redis.call('HDEL', one.key, found[at])
    end
  end
  return 0, taken
end

function slots.take(one, high, low, call)
  lease(one, call, one.own + one.low)
  return 0
end

function slots.settle(one, mark, call)
  slots.level(one, call)
  if one.own > one.low then
    lease(one, call, one.own - one.low)
  else
    redis.call('HDEL', one.key, call.epoch)
  end
end

local kinds = {rate = rate, budget = budget, slots = slots}

-- What was sent over a connection that is given up may come later than what says so over the next:
-- a call is void once a later connection has settled anything of the same gateway.

local function fenced(call)
  local fence = tonumber(redis.call('HGET', call.keys[1], 'fence') or 0)
  return fence > call.fence, fence < call.fence
end

local calls = {}

function calls.reserve(call)
  if call.name and fenced(call) then return redis.error_reply('FENCED it came too late') end
  local all, levels, passes = true, {}, {}
  for at, one in ipairs(call.limits) do
    one.key = call.keys[at + 1]
    local high, low = kinds[one.kind].level(one, call)
    local room_high, room_low = add(high, low, one.high, one.low)
    passes[at] = not less(one.room_high, one.room_low, room_high, room_low)
    levels[2 * at - 1], levels[2 * at] = high, low
    if not passes[at] and not one.shadow then all = false end
  end
  if all then
    local marks = {}
    for at, one in ipairs(call.limits) do
      if passes[at] then
        marks[at] = kinds[one.kind].take(one, levels[2 * at - 1], levels[2 * at], call)
      else
        marks[at] = -1 -- a shadow that is over takes nothing
      end
    end
    if call.name then
      redis.call('HSET', call.keys[1], call.name, cmsgpack.pack(marks))
      redis.call('PEXPIRE', call.keys[1], DAY_MS)
    end
  end
  return cmsgpack.pack({all, levels})
end

function calls.settle(call)
  local _, later = fenced(call)
  if later then
    redis.call('HSET', call.keys[1], 'fence', call.fence)
    redis.call('PEXPIRE', call.keys[1], DAY_MS)
  end
  local found = redis.call('HGET', call.keys[1], call.name)
  if not found then return 'known' end -- it was settled before, or never was
  redis.call('HDEL', call.keys[1], call.name)
  local marks = cmsgpack.unpack(found)
  for at, one in ipairs(call.limits) do
    local mark = marks[one.place] or 0
    one.key = call.keys[at + 1]
    if mark >= 0 then kinds[one.kind].settle(one, mark, call) end
  end
  return 'settled'
end

function calls.hold(call)
  -- What this gateway holds still runs: also where the store had forgotten it.
  if fenced(call) then return redis.error_reply('FENCED it came too late') end
  for _, name in ipairs(call.names) do redis.call('HSETNX', call.keys[1], name, cmsgpack.pack({})) end
  redis.call('PEXPIRE', call.keys[1], DAY_MS)
  for at, count in ipairs(call.counts) do
    local one = {key = call.keys[at + 1]}
    slots.level(one, call)
    lease(one, call, one.own > 0 and one.own or count)
  end
  return 'held'
end

redis.register_function('NAME', function(keys, args)
  local call = cmsgpack.unpack(args[1])
  call.keys = keys
  return calls[call.call](call)
end)
