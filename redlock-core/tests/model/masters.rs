//! What masters do: set, extend and delete keys, raise counters.

use redlock_core::{FencingToken, Nonce, Operation, Reply, Token, Ttl};

use crate::{
    setup::{Counters, Mutation, Setup},
    world::{Counter, Key, Master, World},
};

/// Carries out a message on a master. The answer may never arrive.
pub(crate) fn execute(
    setup: &Setup,
    world: &mut World,
    master: usize,
    operation: &Operation,
) -> Reply {
    let now = world.now;
    let it = &mut world.masters[master];
    if it.is_gone {
        return Reply::Unknown;
    }
    it.key.take_if(|key| key.expires_at <= now);
    let value = |token: Token| -> Token { setup.value(token) };
    let holds = |key: &Option<Key>, token: Token| {
        key.as_ref()
            .is_some_and(|key| value(key.token) == value(token))
    };
    match *operation {
        Operation::Acquire { token, ttl, fence } => {
            if it.key.is_some() {
                return Reply::Denied;
            }
            let expires_at = now + in_ticks(ttl);
            it.key = Some(Key { token, expires_at });
            fence.map_or(Reply::Granted, |fence| setup.raise(now, it, fence))
        }
        Operation::Fence { token, fence } if holds(&it.key, token) => setup.raise(now, it, fence),
        Operation::Extend { token, ttl } if holds(&it.key, token) => {
            if let Some(key) = &mut it.key {
                key.expires_at = key.expires_at.max(now + in_ticks(ttl));
            }
            Reply::Granted
        }
        Operation::Release { token } if holds(&it.key, token) => {
            it.key = None;
            Reply::Granted
        }
        Operation::Fence { .. } | Operation::Extend { .. } | Operation::Release { .. } => {
            Reply::Denied
        }
        // No lease here sends a probe. A probe only moves the time of the next attempt, and here attempts
        // are made at any time.
        Operation::Probe { .. } => Reply::Unknown,
        _ => Reply::Refused,
    }
}

/// A tick is a millisecond.
fn in_ticks(ttl: Ttl) -> u8 {
    u8::try_from(ttl.as_millis()).expect("a few ticks")
}

impl Setup {
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
