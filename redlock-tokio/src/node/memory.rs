use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};
use redlock_core::{FencingToken, Operation, Timestamp, Token, Ttl};

use super::{Answer, Command, FreedNotifier, Node, NodeError, Session, Vote};
use crate::{
    Clock, Key,
    sync::{Mutex, MutexGuard},
};

/// A master within the process: the same semantics as a Redis server, without one.
///
/// It is the embedded default of the quickstart, and a double for your own tests. Clones share
/// their keys, so several [`Redlock`](crate::Redlock)s over clones of the same nodes contend as
/// processes do over the same servers. It does *not* lock across processes.
///
/// ```
/// # use redlock_tokio::{MemoryNode, Redlock};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let nodes: Vec<MemoryNode> = (0..5).map(|_| MemoryNode::new()).collect();
/// let redlock = Redlock::builder().custom_nodes(nodes.clone()).build().await?;
///
/// let guard = redlock.try_lock("order:42").await?;
/// assert!(nodes.iter().all(|node| node.contains("order:42")));
/// guard.release().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryNode {
    address: Arc<str>,
    clock: Clock,
    keys: Arc<Mutex<Keys>>,
    /// Where to tell that keys are gone, if this is a session.
    freed: Option<FreedNotifier>,
}

#[derive(Default)]
struct Keys {
    entries: HashMap<Key, Entry>,
    /// The fencing counters of keys that were fenced. They never expire.
    counters: HashMap<Key, FencingToken>,
    /// When this many keys are there, the expired ones are removed.
    sweep_at: usize,
    down: bool,
    /// What is deleted as soon as it is set.
    doomed: HashSet<Key>,
    /// Who is to be told when a key is gone.
    watchers: HashMap<Key, Vec<FreedNotifier>>,
}

struct Entry {
    value: Box<[u8]>,
    expires_at: Timestamp,
}

impl MemoryNode {
    /// Creates an empty node whose keys expire by tokio's clock, which tests can pause.
    /// Give the lock [the same clock](crate::RedlockBuilder::clock) then.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Clock::tokio())
    }

    /// Creates an empty node whose keys expire by this clock.
    #[must_use]
    pub fn with_clock(clock: Clock) -> Self {
        static CREATED: AtomicUsize = AtomicUsize::new(0);
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        Self {
            address: format!("memory:{number}").into(),
            clock,
            keys: Arc::default(),
            freed: None,
        }
    }

    /// Returns whether the key exists and has not expired.
    #[must_use]
    pub fn contains(&self, key: impl AsRef<[u8]>) -> bool {
        self.value(key).is_some()
    }

    /// Returns the value of a key that has not expired.
    #[must_use]
    pub fn value(&self, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        let now = self.clock.now();
        let keys = self.keys();
        let entry = keys.entries.get(&Key::new(key).ok()?)?;
        entry.is_live(now).then(|| entry.value.to_vec())
    }

    /// Returns the number of keys that have not expired.
    #[must_use]
    pub fn len(&self) -> usize {
        let now = self.clock.now();
        let keys = self.keys();
        keys.entries.values().filter(|it| it.is_live(now)).count()
    }

    /// Returns whether there are no keys, or only expired ones.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets a key as another client would, whatever it was.
    ///
    /// # Panics
    ///
    /// If the key is empty or too long; see [`Key`].
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Ttl) {
        let key = Key::new(key).unwrap_or_else(|error| panic!("not a key: {error}"));
        let expires_at = self.clock.now().saturating_add(ttl.as_duration());
        let value = value.as_ref().into();
        self.keys().entries.insert(key, Entry { value, expires_at });
    }

    /// Deletes a key, whoever holds it; returns whether it existed.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> bool {
        let now = self.clock.now();
        let Ok(key) = Key::new(key) else {
            return false;
        };
        let mut keys = self.keys();
        let removed = keys.entries.remove(&key);
        let watchers = keys.watchers.remove(&key);
        drop(keys);
        tell(watchers, &key);
        removed.is_some_and(|entry| entry.is_live(now))
    }

    /// Loses the key the next time that a client sets it. The node grants the request and forgets the
    /// key at once, so the client learns of the loss with its next extension. A key that exists now is
    /// not touched.
    pub fn lose_next(&self, key: impl AsRef<[u8]>) {
        if let Ok(key) = Key::new(key) {
            self.keys().doomed.insert(key);
        }
    }

    /// Deletes all keys and fencing counters, as a restart without persistence does.
    pub fn clear(&self) {
        let mut keys = self.keys();
        keys.entries.clear();
        keys.counters.clear();
        let watchers = std::mem::take(&mut keys.watchers);
        drop(keys);
        for (key, watchers) in watchers {
            tell(Some(watchers), &key);
        }
    }

    /// Takes the node down (`true`) or up again: while it is down it refuses connections and
    /// breaks those it has. It keeps its keys.
    pub fn set_down(&self, down: bool) {
        self.keys().down = down;
    }

    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock()
    }
}

impl Keys {
    /// Does to all keys of a command what it asks, or to none.
    fn execute(&mut self, now: Timestamp, command: &Command) -> Answer {
        let keys = command.keys();
        let has = |it: &Self, key, token: Token| {
            it.live(now, key)
                .is_some_and(|entry| *entry.value == token.to_ascii())
        };
        match command.operation() {
            Operation::Acquire { token, ttl, fence } => {
                // Of several keys, those with the token itself are set again, as a repair.
                let is_repair = command.has_several_keys();
                let is_taken =
                    |key| self.live(now, key).is_some() && !(is_repair && has(self, key, token));
                if keys.clone().any(is_taken) {
                    return Ok(Vote::Denied);
                }
                self.sweep(now);
                for key in keys.filter(|&key| !self.doomed.remove(key)) {
                    let entry = Entry {
                        value: token.to_ascii().into(),
                        expires_at: now.saturating_add(ttl.as_duration()),
                    };
                    self.entries.insert(key.clone(), entry);
                }
                let key = command.key();
                Ok(fence.map_or(Vote::Granted, |fence| self.raise_counter(key, fence)))
            }
            Operation::Fence { token, fence } => {
                if !has(self, command.key(), token) {
                    return Ok(Vote::Denied);
                }
                Ok(self.raise_counter(command.key(), fence))
            }
            Operation::Extend { token, ttl } => {
                if !keys.clone().all(|key| has(self, key, token)) {
                    return Ok(Vote::Denied);
                }
                let expires_at = now.saturating_add(ttl.as_duration());
                for key in keys {
                    if let Some(entry) = self.entries.get_mut(key) {
                        entry.expires_at = entry.expires_at.max(expires_at);
                    }
                }
                Ok(Vote::Granted)
            }
            Operation::Release { token } => {
                let ours = keys.clone().filter(|key| has(self, key, token)).count();
                for key in keys.clone() {
                    if has(self, key, token) {
                        self.entries.remove(key);
                    }
                }
                Ok(if ours == command.key_count() {
                    Vote::Granted
                } else {
                    Vote::Denied
                })
            }
            Operation::Probe { .. } => {
                let ends = keys.filter_map(|key| self.live(now, key));
                Ok(match ends.map(|entry| entry.expires_at).max() {
                    None => Vote::Free,
                    Some(at) => Vote::Taken {
                        remaining: at.saturating_duration_since(now),
                    },
                })
            }
            _ => Err(NodeError::unknown_operation()),
        }
    }

    /// Remembers who is to be told when a key of the command is gone.
    fn watch(&mut self, command: &Command, freed: &FreedNotifier) {
        for key in command.keys() {
            let watchers = self.watchers.entry(key.clone()).or_default();
            if !watchers.contains(freed) {
                watchers.push(freed.clone());
            }
        }
    }

    /// Takes who is to be told that a key is gone, if it is.
    fn take_watchers(&mut self, now: Timestamp, key: &Key) -> Option<(Key, Vec<FreedNotifier>)> {
        if self.live(now, key).is_some() {
            return None;
        }
        self.watchers.remove_entry(key)
    }

    fn raise_counter(&mut self, key: &Key, fence: FencingToken) -> Vote {
        match self.counters.get(key) {
            Some(&counter) if counter >= fence => Vote::Outbid { counter },
            _ => {
                self.counters.insert(key.clone(), fence);
                Vote::Granted
            }
        }
    }

    fn live(&self, now: Timestamp, key: &Key) -> Option<&Entry> {
        self.entries.get(key).filter(|entry| entry.is_live(now))
    }

    /// Removes expired keys whenever their number may have doubled, so that the cost of it stays
    /// constant for each key and memory stays bounded.
    fn sweep(&mut self, now: Timestamp) {
        const FEWEST: usize = 64;
        if self.entries.len() >= self.sweep_at.max(FEWEST) {
            self.entries.retain(|_, entry| entry.is_live(now));
            // Whoever waits for a key that has expired knows when it would.
            let entries = &self.entries;
            self.watchers.retain(|key, _| entries.contains_key(key));
            self.sweep_at = self.entries.len() * 2;
        }
    }
}

impl Entry {
    fn is_live(&self, now: Timestamp) -> bool {
        now < self.expires_at
    }
}

impl Default for MemoryNode {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryNode").field(&self.address).finish()
    }
}

impl Node for MemoryNode {
    fn address(&self) -> &str {
        &self.address
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        let session = if self.keys().down {
            Err(NodeError::Unreachable("the node is down".into()))
        } else {
            Ok(Box::new(self.clone()) as Box<dyn Session>)
        };
        async { session }.boxed()
    }
}

impl Session for MemoryNode {
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
        let now = self.clock.now();
        let mut keys = self.keys();
        if keys.down {
            return ready(Err(NodeError::Disconnected("the node is down".into()))).boxed();
        }
        let mut gone = Vec::new();
        let mut answers = Vec::with_capacity(batch.len());
        for command in batch {
            let answer = keys.execute(now, command);
            match (command.operation(), &answer) {
                (Operation::Probe { .. }, Ok(Vote::Taken { .. })) => {
                    if let Some(freed) = &self.freed {
                        keys.watch(command, freed);
                    }
                }
                (Operation::Release { .. }, _) => {
                    gone.extend(
                        command
                            .keys()
                            .filter_map(|key| keys.take_watchers(now, key)),
                    );
                }
                _ => {}
            }
            answers.push(answer);
        }
        drop(keys);
        for (key, watchers) in gone {
            tell(Some(watchers), &key);
        }
        ready(Ok(answers)).boxed()
    }

    fn watch(&mut self, freed: FreedNotifier) {
        self.freed = Some(freed);
    }
}

/// Tells that a key is gone. Not while the keys are locked: who is told may act at once.
fn tell(watchers: Option<Vec<FreedNotifier>>, key: &Key) {
    for freed in watchers.into_iter().flatten() {
        freed.key(key.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use redlock_core::Nonce;

    fn ttl(millis: u64) -> Ttl {
        Ttl::new(Duration::from_millis(millis)).unwrap()
    }

    fn execute(node: &MemoryNode, key: &str, operation: Operation) -> Vote {
        let key = Key::new(key).unwrap();
        let now = node.clock.now();
        let answer = node.keys().execute(now, &Command::new(key, operation));
        answer.expect("the operation is known")
    }

    fn paused() -> MemoryNode {
        MemoryNode::with_clock(Clock::tokio())
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_belongs_to_its_token_until_it_expires() {
        let node = paused();
        let [ours, theirs] = [Nonce::new(1).token(1), Nonce::new(2).token(1)];
        let acquire = |token| Operation::Acquire {
            token,
            ttl: ttl(100),
            fence: None,
        };
        assert_eq!(execute(&node, "k", acquire(ours)), Vote::Granted);
        assert_eq!(execute(&node, "k", acquire(ours)), Vote::Denied, "NX");
        assert_eq!(execute(&node, "k", acquire(theirs)), Vote::Denied);
        let release = Operation::Release { token: theirs };
        assert_eq!(execute(&node, "k", release), Vote::Denied);
        assert_eq!(node.value("k").unwrap(), ours.to_ascii());
        tokio::time::advance(Duration::from_millis(100)).await;
        assert!(!node.contains("k") && node.is_empty());
        assert_eq!(execute(&node, "k", acquire(theirs)), Vote::Granted);
    }

    #[tokio::test(start_paused = true)]
    async fn an_extension_raises_only_and_needs_the_token() {
        let node = paused();
        let [ours, theirs] = [Nonce::new(1).token(1), Nonce::new(2).token(1)];
        let acquire = Operation::Acquire {
            token: ours,
            ttl: ttl(100),
            fence: None,
        };
        let extend = |token, millis| Operation::Extend {
            token,
            ttl: ttl(millis),
        };
        assert_eq!(execute(&node, "k", extend(ours, 100)), Vote::Denied);
        execute(&node, "k", acquire);
        assert_eq!(execute(&node, "k", extend(theirs, 500)), Vote::Denied);
        assert_eq!(execute(&node, "k", extend(ours, 200)), Vote::Granted);
        assert_eq!(execute(&node, "k", extend(ours, 50)), Vote::Granted);
        tokio::time::advance(Duration::from_millis(199)).await;
        assert!(node.contains("k"));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!node.contains("k"));
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_next_key_that_is_set_is_lost() {
        let node = paused();
        let acquire = Operation::Acquire {
            token: Nonce::new(1).token(1),
            ttl: ttl(100),
            fence: None,
        };
        node.lose_next("k");
        assert_eq!(execute(&node, "k", acquire), Vote::Granted);
        assert!(!node.contains("k"), "its holder does not know");
        assert_eq!(execute(&node, "k", acquire), Vote::Granted);
        assert!(node.contains("k"), "the one before was lost");
        node.lose_next("k");
        assert!(node.contains("k"), "not the key that exists");
        assert!(node.remove("k"));
        assert_eq!(execute(&node, "k", acquire), Vote::Granted);
        assert!(!node.contains("k"));
        node.lose_next("");
    }

    #[tokio::test(start_paused = true)]
    async fn expired_keys_do_not_pile_up() {
        let node = paused();
        for number in 0..10_000 {
            let operation = Operation::Acquire {
                token: Nonce::new(number).token(1),
                ttl: ttl(10),
                fence: None,
            };
            execute(&node, &format!("k{number}"), operation);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let stored = node.keys().entries.len();
        assert!(stored <= 128, "{stored} entries for 10 live keys");
    }
}
