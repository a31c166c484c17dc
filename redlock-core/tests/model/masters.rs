//! What masters do: set, extend and delete keys, raise counters.

use std::ops::Range;

use redlock_core::{
    Access, FencingToken, Nonce, Operation, Reply, Slot, SlotSet, Timestamp, Token, Ttl,
};

use crate::{
    setup::{Counters, Mutation, Setup},
    world::{Counter, KEYS, Key, Link, Master, Message, World, ticks},
};

/// Carries out a message on a master. The answer may never arrive.
pub(crate) fn execute(
    setup: &Setup,
    world: &mut World,
    Link { client, master }: Link,
    message: &Message,
) -> Reply {
    let mut wanted = world.keys_of(client, message.access);
    if setup.mutation == Some(Mutation::PermitsCounted) {
        wanted = counted(world, client, master, message.operation.token());
    }
    let now = world.now;
    carry_out(setup, now, &mut world.masters[master], wanted, message)
}

/// Carries out a message that is about these keys of a master.
pub(crate) fn carry_out(
    setup: &Setup,
    now: u8,
    it: &mut Master,
    wanted: Range<usize>,
    message: &Message,
) -> Reply {
    let has_several = wanted.len() > 1;
    if it.is_gone {
        return Reply::Unknown;
    }
    it.forget_expired(now);
    if let Access::Reader { .. } = message.access {
        return setup.read(now, it, message);
    }
    let has_readers =
        !it.readers.is_empty() && setup.mutation != Some(Mutation::WriterBesideReaders);
    let keys = &mut it.keys[wanted];
    let value = |token: Token| -> Token { setup.value(token) };
    let is_ours = |key: &Option<Key>, token: Token| {
        key.as_ref()
            .is_some_and(|key| value(key.token) == value(token))
    };
    let has_all = |keys: &[Option<Key>], token| keys.iter().all(|key| is_ours(key, token));
    match message.operation {
        Operation::Acquire { token, ttl, fence } => {
            let is_taken =
                |key: &Option<Key>| key.is_some() && !(has_several && is_ours(key, token));
            let taken = keys.iter().position(is_taken);
            if has_readers {
                return Reply::Denied;
            }
            let accepts_part = setup.mutation == Some(Mutation::PartOfTheKeys);
            let settable = match taken {
                Some(first) if accepts_part => first,
                Some(_) => 0,
                None => keys.len(),
            };
            if settable == 0 {
                return Reply::Denied;
            }
            let expires_at = now + in_ticks(ttl);
            keys[..settable].fill(Some(Key { token, expires_at }));
            fence.map_or(Reply::Granted, |fence| setup.raise(now, it, fence))
        }
        Operation::Adopt {
            giver,
            token,
            ttl,
            fence,
        } => {
            let is_absent = keys.iter().all(Option::is_none);
            let grants_absent = setup.mutation == Some(Mutation::AdoptedWithoutAKey);
            let is_given = has_all(keys, giver) || (is_absent && grants_absent);
            if !is_given {
                return Reply::Denied;
            }
            let is_kept = setup.mutation == Some(Mutation::AdoptedWithoutANewToken);
            for key in keys {
                *key = Some(Key {
                    token: if is_kept { giver } else { token },
                    expires_at: now + in_ticks(ttl),
                });
            }
            fence.map_or(Reply::Granted, |fence| setup.raise(now, it, fence))
        }
        Operation::Fence { token, fence } if has_all(keys, token) => setup.raise(now, it, fence),
        // Each key on its own, and granted if all were there.
        Operation::Extend { token, .. } | Operation::Release { token } => {
            let had_all = has_all(keys, token);
            for key in keys.iter_mut().filter(|key| is_ours(key, token)) {
                let (Operation::Extend { ttl, shortens, .. }, Some(key)) =
                    (message.operation, &mut *key)
                else {
                    *key = None;
                    continue;
                };
                let expires_at = now + in_ticks(ttl);
                if shortens || key.expires_at < expires_at {
                    key.expires_at = expires_at;
                }
            }
            if had_all {
                Reply::Granted
            } else {
                Reply::Denied
            }
        }
        Operation::Fence { .. } => Reply::Denied,
        // No lock here sends a probe. A probe only moves the time of the next attempt, and here attempts are made at
        // any time. A look at the slots of a semaphore is answered at once.
        Operation::Probe { .. } => Reply::Unknown,
        _ => Reply::Refused,
    }
}

/// Which slots a client sees free on a master.
pub(crate) fn look(world: &World, master: usize) -> Reply {
    let it = &world.masters[master];
    if it.is_gone {
        return Reply::Unknown;
    }
    let (mut free, mut taken) = (SlotSet::EMPTY, SlotSet::EMPTY);
    let mut first = (Timestamp::MAX, 0);
    for (index, key) in it.keys.iter().enumerate() {
        match key.as_ref().filter(|key| world.now < key.expires_at) {
            Some(key) => {
                taken.insert(slot(index));
                first = first.min((ticks(key.expires_at), index));
            }
            None => _ = free.insert(slot(index)),
        }
    }
    let (until, next) = (first.0, slot(first.1));
    Reply::Slots {
        free,
        taken,
        next,
        until,
    }
}

/// The slot that a master chooses which only counts its holders: the one with this token, or the first that is free.
fn counted(world: &World, client: usize, master: usize, token: Token) -> Range<usize> {
    let keys = &world.masters[master].keys;
    let is_live = |key: &&Key| world.now < key.expires_at;
    let live = |index: &usize| keys[*index].as_ref().filter(is_live);
    let has_token = |index: &usize| live(index).is_some_and(|key| key.token == token);
    let ours = (0..KEYS).find(has_token);
    let free = (0..KEYS).find(|index| live(index).is_none());
    let chosen = ours.or(free).unwrap_or(world.clients[client].keys.start);
    chosen..chosen + 1
}

pub(crate) fn slot(index: usize) -> Slot {
    Slot::new(index).expect("there are two slots")
}

/// A tick is a millisecond.
fn in_ticks(ttl: Ttl) -> u8 {
    u8::try_from(ttl.as_millis()).expect("a few ticks")
}

impl Master {
    /// Forgets all keys, but not the counter.
    pub(crate) fn forget_all(&mut self) {
        self.keys = Default::default();
        self.readers = Vec::new();
    }

    pub(crate) fn forget_expired(&mut self, now: u8) {
        for key in &mut self.keys {
            key.take_if(|key| key.expires_at <= now);
        }
        self.readers.retain(|reader| now < reader.expires_at);
    }
}

impl Setup {
    /// Carries out a request of a reader on a master that has forgotten what has expired.
    fn read(&self, now: u8, master: &mut Master, message: &Message) -> Reply {
        let token = message.operation.token();
        let position = master.readers.iter().position(|it| it.token == token);
        let is_exclusive = master.keys[0].is_some();
        match message.operation {
            Operation::Acquire { ttl, .. } => {
                let is_blind = match self.mutation {
                    Some(Mutation::RepairBesideWriter) => message.repairs,
                    Some(Mutation::JoinBesideWriter) => true,
                    _ => false,
                };
                if is_exclusive && !is_blind {
                    return Reply::Denied;
                }
                self.keep(now, master, token, ttl);
                Reply::Granted
            }
            Operation::Extend { ttl, .. } => {
                let downgrades = master.keys[0].take_if(|key| key.token == token).is_some();
                if position.is_none() && !downgrades {
                    return Reply::Denied;
                }
                self.keep(now, master, token, ttl);
                Reply::Granted
            }
            Operation::Release { .. } => {
                let was_exclusive = master.keys[0].take_if(|key| key.token == token).is_some();
                if let Some(position) = position {
                    master.readers.remove(position);
                } else if !was_exclusive {
                    return Reply::Denied;
                }
                Reply::Granted
            }
            _ => Reply::Refused,
        }
    }

    /// Adds a reader, or raises its expiry.
    fn keep(&self, now: u8, master: &mut Master, token: Token, ttl: Ttl) {
        let expires_at = now + in_ticks(ttl);
        match master.readers.iter_mut().find(|it| it.token == token) {
            Some(reader) => reader.expires_at = reader.expires_at.max(expires_at),
            None => master.readers.push(Key { token, expires_at }),
        }
        master.readers.sort_by_key(|it| it.token.to_ascii());
        if self.mutation == Some(Mutation::RenewedAsAWhole) {
            for reader in &mut master.readers {
                reader.expires_at = reader.expires_at.max(expires_at);
            }
        }
    }

    fn raise(&self, now: u8, master: &mut Master, fence: FencingToken) -> Reply {
        let expired = master.counter.take_if(|it| it.expires_at <= now);
        master.counter_expired |= expired.is_some();
        match &master.counter {
            Some(counter) if counter.fence >= fence => Reply::Outbid {
                counter: counter.fence,
            },
            _ => {
                let expires_at = match self.counters {
                    Counters::Expire { after } => now + after,
                    _ => u8::MAX,
                };
                master.counter = Some(Counter { fence, expires_at });
                Reply::Granted
            }
        }
    }

    /// What a token is on the wire. A driver that reuses tokens sends the same for all attempts.
    fn value(&self, token: Token) -> Token {
        if self.mutation == Some(Mutation::TokenReused) {
            // The last eight digits are the attempt.
            let nonce = token.to_string()[..32].to_owned();
            let nonce = u128::from_str_radix(&nonce, 16).expect("hexadecimal digits");
            Nonce::new(nonce).token(0)
        } else {
            token
        }
    }
}
