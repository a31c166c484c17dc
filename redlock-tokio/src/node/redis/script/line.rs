//! The script of lines. See [`LineRequest`](crate::node::LineRequest).
//!
//! A line is a sorted set of names: the number of a member in 16 digits, and the name of its client. Its score is the number of
//! its place. Processes for several keys, and those that are not called, stand in the same set as others, each kind in a *band*
//! of scores, so that they do not hold up others.
//!
//! A node, or a voter of a cluster, has one sorted set of the members that are alive, with the count of their last beats. The
//! count itself is beside it, with the second in which it rose. A member has a sorted set of its places, so that a death can
//! remove all of them, with two numbers: its life, and whether it listens on its channel.

use super::{Name, Reply, Script};
use crate::Key;

/// `KEYS` are the set of the living, and the line. `ARGV` are the action, the member's number, the lifetime of lines in
/// milliseconds, the prefix of channels, the member's name, the key, how many may try at a time, the band, and what else the
/// action needs.
///
/// One call removes at most a thousand members or places, so that the server can do other work in between.
pub(in crate::node::redis) static LINE: Script = Script::new(
    &[Name::Living, Name::Beside(Key::LINES)],
    &[],
    Reply::Other,
    "local living, line = KEYS[1], KEYS[2] \
     local action, id, lifetime, channels, name, key = unpack(ARGV, 1, 6) \
     local active, band = tonumber(ARGV[7]), tonumber(ARGV[8]) \
     local WIDTH = 2251799813685248 \
     local left, has_more, dead, to_call = 1000, 0, {}, {} \
     local function places_of(member) \
       return living .. ':' .. member \
     end \
     local function first(line, band, ahead) \
       local from = band * WIDTH \
       return redis.call('ZRANGE', line, from, from + WIDTH - 1, 'BYSCORE', 'LIMIT', ahead, 1)[1] \
     end \
     local function lives(name) \
       local member = string.sub(name, 1, 16) \
       local count = not dead[member] and redis.call('ZSCORE', living, member) \
       return count and count ~= '0' \
     end \
     local function bury(member) \
       local places = places_of(member) \
       dead[member] = true \
       redis.call('ZREM', places, 'life') \
       for _, place in ipairs(redis.call('ZRANGE', places, 0, left)) do \
         if place ~= 'hears' and left > 0 then \
           left = left - 1 \
           local line, key, active, name = cmsgpack.unpack(place) \
           local score = redis.call('ZSCORE', line, name) \
           if score then \
             redis.call('ZREM', line, name) \
             to_call[#to_call + 1] = {line, key, active, math.floor(score / WIDTH), 0} \
           end \
           redis.call('ZREM', places, place) \
         end \
       end \
       if left > 0 then \
         redis.call('DEL', places) \
         redis.call('ZREM', living, member) \
       else \
         has_more = 1 \
         redis.call('ZADD', living, 0, member) \
       end \
     end \
     local function beat(time) \
       local second, count = string.match(redis.call('GET', living .. ':count') or '', '^(%d+) (%d+)$') \
       local rises = second ~= time[1] \
       if not count then \
         local highest = redis.call('ZRANGE', living, 0, 0, 'REV', 'WITHSCORES')[2] \
         count = math.min(math.max(highest or 0, 3), WIDTH) \
       end \
       count = count + (rises and 1 or 0) \
       if rises then \
         redis.call('SET', living .. ':count', time[1] .. ' ' .. string.format('%.0f', count), 'PX', lifetime) \
       end \
       redis.call('ZADD', living, count, id) \
       dead[id] = nil \
       if rises or action == 'beat' then \
         redis.call('PEXPIRE', living, lifetime) \
         local late = redis.call('ZRANGE', living, '-inf', count - 3, 'BYSCORE', 'LIMIT', 0, 100) \
         for _, member in ipairs(late) do \
           bury(member) \
         end \
         has_more = #late == 100 and 1 or has_more \
       end \
       return rises \
     end \
     local function remove(line, name) \
       bury(string.sub(name, 1, 16)) \
       if redis.call('ZREM', line, name) == 1 then \
         left = left - 1 \
       end \
     end \
     local function call(line, key, active, band, is_taken) \
       local ahead = 0 \
       while ahead < active do \
         local name = first(line, band, ahead) \
         local member = name and string.sub(name, 1, 16) \
         if not name or left == 0 and not lives(name) then \
           return \
         elseif not lives(name) then \
           remove(line, name) \
         else \
           if redis.pcall('PUBLISH', channels .. member, is_taken .. key) == 0 \
             and redis.call('ZSCORE', places_of(member), 'hears') == '1' then \
             return bury(member) \
           end \
           ahead = ahead == 0 and math.max(active - 1, 1) or active \
         end \
       end \
     end \
     local function call_all() \
       local at = 1 \
       while to_call[at] do \
         call(unpack(to_call[at])) \
         at = at + 1 \
       end \
     end \
     local function remove_dead_heads(band) \
       local head = first(line, band, 0) \
       while head and head ~= name and left > 0 and not lives(head) do \
         remove(line, head) \
         head = first(line, band, 0) \
       end \
       return head \
     end \
     if action == 'join' then \
       local number, hears, only_behind_others = unpack(ARGV, 9, 11) \
       local head = remove_dead_heads(band) \
       if not head and only_behind_others == '1' then \
         return 0 \
       end \
       local time = redis.call('TIME') \
       local micros = (time[1] - 1577836800) * 1000000 + time[2] \
       local keeps = beat(time) or not head \
       local places = places_of(id) \
       local life, is_new = redis.call('ZSCORE', places, 'life'), false \
       if not life then \
         life, is_new, keeps = micros + 1577836800000000, true, true \
         redis.call('ZADD', places, life, 'life') \
       end \
       local from, score = band * WIDTH, redis.call('ZSCORE', line, name) \
       if not score or math.floor(score / WIDTH) ~= band then \
         if number == '' then \
           local last = redis.call('ZRANGE', line, from + WIDTH - 1, from, 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')[2] \
           number = math.max(last and last - from + 1 or 1, micros) \
         end \
         score = from + math.min(number, WIDTH - 1) \
         redis.call('ZADD', line, score, name) \
         is_new = true \
       else \
         keeps = true \
       end \
       if is_new then \
         redis.call('ZADD', places, active, cmsgpack.pack(line, key, active, name), hears, 'hears') \
       end \
       if keeps then \
         redis.call('PEXPIRE', line, lifetime) \
         redis.call('PEXPIRE', places, lifetime) \
       end \
       if #to_call > 0 or ARGV[9] ~= '' then \
         call_all() \
         head = first(line, band, 0) \
       end \
       local ahead = 0 \
       if head and head ~= name then \
         ahead = redis.call('ZRANK', line, name) or 0 \
         if band > 0 then \
           ahead = ahead - redis.call('ZRANK', line, head) \
         end \
       end \
       return {ahead, score - from, tonumber(life)} \
     elseif action == 'leave' then \
       redis.call('ZREM', line, name) \
       redis.call('ZREM', places_of(id), cmsgpack.pack(line, key, active, name)) \
       call(line, key, active, band, ARGV[9] or 0) \
       call_all() \
       return 0 \
     elseif action == 'call' then \
       call(line, key, active, band, 0) \
       call_all() \
       return 0 \
     elseif action == 'count' then \
       if redis.call('ZCARD', line) == 0 then \
         return 0 \
       end \
       for band = 0, 3 do \
         remove_dead_heads(band) \
       end \
       call_all() \
       return redis.call('ZCARD', line) \
     end \
     local places = places_of(id) \
     local life = redis.call('ZSCORE', places, 'life') \
     if action == 'leave all' then \
       bury(id) \
       life = nil \
     elseif life and redis.call('ZCARD', places) > 2 then \
       redis.call('PEXPIRE', places, lifetime) \
       beat(redis.call('TIME')) \
     else \
       life = nil \
     end \
     call_all() \
     return {tonumber(life or 0), has_more}",
);
