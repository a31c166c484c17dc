mod lines;
mod store;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};
use redlock_core::{Operation, Ttl};

use self::{lines::Listener, store::Store};
use super::{
    Answer, Command, FoundKeys, FreedNotifier, KeyState, LineAnswer, LineRequest, Node, NodeError,
    Session, Vote,
};
use crate::{
    Clock, Key,
    sync::{Mutex, MutexGuard},
};

/// A master within the process: it has the semantics of a Redis server, without a server.
///
/// [`Redlock::embedded`](crate::Redlock::embedded) uses it, and it is a test double for your own tests. Clones share
/// their keys, so several [`Redlock`](crate::Redlock)s over clones of the same nodes contend as processes do over the
/// same servers. It does *not* lock across processes.
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
    store: Arc<Mutex<Store>>,
    /// The notifier of this session, if this is one.
    freed: Option<FreedNotifier>,
    /// Lasts as long as the session.
    session: Arc<()>,
}

impl MemoryNode {
    /// Creates an empty node whose keys expire by tokio's clock. If a test pauses that clock, give the
    /// [`Redlock`](crate::Redlock) the [same clock](crate::RedlockBuilder::clock): `.clock(Clock::tokio())`.
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
            store: Arc::default(),
            freed: None,
            session: Arc::default(),
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
        let key = Key::new(key).ok()?;
        self.store().value(now, &key).map(<[u8]>::to_vec)
    }

    /// Returns the number of keys that have not expired.
    #[must_use]
    pub fn len(&self) -> usize {
        let now = self.clock.now();
        self.store().len(now)
    }

    /// Returns whether there are no keys, or only expired ones.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets a key as another client would, even if the key exists.
    ///
    /// # Panics
    ///
    /// Panics if the key is empty, longer than [`Key::MAX_LEN`], or [reserved](crate::KeyError::Reserved).
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Ttl) {
        let key = Key::new(key).unwrap_or_else(|error| panic!("not a key: {error}"));
        let expires_at = self.clock.now().saturating_add(ttl.as_duration());
        self.store().insert(key, value.as_ref(), expires_at);
    }

    /// Deletes a key, no matter which client holds it. Returns whether the key existed.
    ///
    /// ```
    /// # use redlock_tokio::{MemoryNode, Redlock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let node = MemoryNode::new();
    /// let redlock = Redlock::builder().custom_nodes([node.clone()]).build().await?;
    /// let guard = redlock.try_lock("order:42").await?;
    ///
    /// // As an operator would with `DEL order:42`.
    /// assert!(node.remove("order:42"));
    /// assert!(guard.extend().await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn remove(&self, key: impl AsRef<[u8]>) -> bool {
        let now = self.clock.now();
        let Ok(key) = Key::new(key) else {
            return false;
        };
        let mut store = self.store();
        let existed = store.remove(now, &key);
        let freed = store.take_freed(now, &key, None);
        drop(store);
        if let Some(freed) = freed {
            freed.notify();
        }
        existed
    }

    /// Loses the key the next time that a client sets it. The node grants the request and forgets the
    /// key at once. A millisecond later it reports that to the client, as a server reports the change of a key by somebody
    /// else. A key that exists now is not touched.
    pub fn lose_next(&self, key: impl AsRef<[u8]>) {
        if let Ok(key) = Key::new(key) {
            self.store().doom(key);
        }
    }

    /// Deletes all keys and fencing counters, as `FLUSHALL` does. The clients that watch a key or wait for one are notified.
    pub fn clear(&self) {
        let notifiers = self.store().clear();
        for it in notifiers {
            it.every_key();
        }
    }

    /// Takes the node down (`true`) or up again (`false`). While the node is down, it refuses connections
    /// and breaks those it has. It keeps its keys.
    ///
    /// ```
    /// # use redlock_tokio::{MemoryNode, Redlock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let nodes: Vec<MemoryNode> = (0..3).map(|_| MemoryNode::new()).collect();
    /// let redlock = Redlock::builder().custom_nodes(nodes.clone()).build().await?;
    ///
    /// nodes[0].set_down(true);
    /// let guard = redlock.lock("order:42").await?; // two of three are a majority
    /// assert!(!nodes[0].contains("order:42"));
    /// guard.release().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_down(&self, down: bool) {
        self.store().is_down = down;
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock()
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
        let session = if self.store().is_down {
            Err(NodeError::Unreachable("the node is down".into()))
        } else {
            Ok(Box::new(Self {
                session: Arc::default(),
                ..self.clone()
            }) as Box<dyn Session>)
        };
        async { session }.boxed()
    }
}

impl Session for MemoryNode {
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
        let now = self.clock.now();
        let mut store = self.store();
        if store.is_down {
            return ready(Err(NodeError::Disconnected("the node is down".into()))).boxed();
        }
        let mut freed = Vec::new();
        let mut answers = Vec::with_capacity(batch.len());
        for command in batch {
            let answer = store.execute(now, command);
            if store.take_loss()
                && let Some(notifier) = &self.freed
            {
                tokio::spawn(report_loss(notifier.clone(), command.clone()));
            }
            match (command.operation(), &answer) {
                (
                    Operation::Probe { .. },
                    Ok(Vote::Taken { .. } | Vote::Marked { .. } | Vote::Slots { .. }),
                ) => {
                    if let Some(notifier) = &self.freed {
                        store.watch(command, notifier);
                    }
                }
                // The extension may be the downgrade of a writer, which lets readers in.
                (Operation::Release { .. } | Operation::Extend { .. }, _) => {
                    let (keys, by) = (command.keys(), self.freed.as_ref());
                    freed.extend(keys.filter_map(|key| store.take_freed(now, key, by)));
                    if let (Operation::Extend { .. }, Some(notifier), false) =
                        (command.operation(), &self.freed, command.is_readers())
                    {
                        store.watch(command, notifier);
                    }
                }
                _ => {}
            }
            answers.push(answer);
        }
        drop(store);
        for freed in freed {
            freed.notify();
        }
        ready(Ok(answers)).boxed()
    }

    fn look_up(&mut self, key: &Key) -> BoxFuture<'static, Result<KeyState, NodeError>> {
        let store = self.store();
        let state = if store.is_down {
            Err(NodeError::Disconnected("the node is down".into()))
        } else {
            Ok(store.look_up(self.clock.now(), key))
        };
        ready(state).boxed()
    }

    fn search(
        &mut self,
        prefix: &[u8],
        _cursor: u64,
    ) -> BoxFuture<'static, Result<FoundKeys, NodeError>> {
        let store = self.store();
        let found = if store.is_down {
            Err(NodeError::Disconnected("the node is down".into()))
        } else {
            let keys = store.search(self.clock.now(), prefix);
            Ok(FoundKeys { keys, next: None })
        };
        ready(found).boxed()
    }

    fn line(
        &mut self,
        requests: &[LineRequest],
    ) -> BoxFuture<'static, Result<Vec<LineAnswer>, NodeError>> {
        let now = self.clock.now();
        let mut store = self.store();
        if store.is_down {
            return ready(Err(NodeError::Disconnected("the node is down".into()))).boxed();
        }
        let by = self.freed.as_ref().map(|notifier| Listener {
            notifier: notifier.clone(),
            session: Arc::downgrade(&self.session),
        });
        let mut called = Vec::new();
        let requests = requests.iter();
        let lines = &mut store.lines;
        let answers = requests.map(|it| lines.execute(now, it, by.clone(), &mut called));
        let answers = answers.collect();
        drop(store);
        for (member, key, is_taken) in called {
            member.called(key.as_bytes(), is_taken);
        }
        ready(Ok(answers)).boxed()
    }

    fn watch(&mut self, freed: FreedNotifier) -> bool {
        self.freed = Some(freed);
        true
    }
}

/// Reports that the keys of a command are gone, once its client has had time to learn that it has them.
async fn report_loss(freed: FreedNotifier, command: Command) {
    tokio::time::sleep(Duration::from_millis(1)).await;
    if command.is_readers() {
        // A change of a key that readers share need not concern all of them.
        return freed.every_key();
    }
    for key in command.keys() {
        freed.key(key.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use redlock_core::{Access, FencingToken, Nonce, Token};

    use super::*;
    use crate::{
        client_name::ClientName,
        key::{KeySet, Prefix},
    };

    fn ttl(millis: u64) -> Ttl {
        Ttl::new(Duration::from_millis(millis)).unwrap()
    }

    fn token(number: u128) -> Token {
        Nonce::new(number).token(1)
    }

    fn acquire(number: u128, millis: u64, fence: Option<u64>) -> Operation {
        Operation::Acquire {
            token: token(number),
            ttl: ttl(millis),
            fence: fence.map(FencingToken::new),
        }
    }

    fn outbid(counter: u64) -> Vote {
        let counter = FencingToken::new(counter);
        Vote::Outbid { counter }
    }

    fn execute(node: &MemoryNode, key: &str, operation: Operation) -> Vote {
        execute_all(node, &[key], operation)
    }

    fn execute_all(node: &MemoryNode, names: &[&str], operation: Operation) -> Vote {
        let keys = KeySet::all(&Prefix::default(), names).unwrap();
        let client = &ClientName::NONE;
        carry_out(
            node,
            &Command::for_all(keys, operation, Access::Exclusive, client),
        )
    }

    fn execute_as(node: &MemoryNode, access: Access, key: &str, operation: Operation) -> Vote {
        let key = Key::new(key).unwrap();
        carry_out(node, &Command::with_access(key, operation, access))
    }

    fn carry_out(node: &MemoryNode, command: &Command) -> Vote {
        let answer = node.store().execute(node.clock.now(), command);
        answer.expect("the operation is known")
    }

    fn paused() -> MemoryNode {
        MemoryNode::with_clock(Clock::tokio())
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_next_key_that_is_set_is_lost() {
        let node = paused();
        let acquire = acquire(1, 100, None);
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
    async fn one_fence_raises_the_counters_of_all_keys() {
        let node = paused();
        for (number, (keys, fence, expected)) in [
            (&["a", "b"][..], 7, Vote::Granted),
            (&["b"], 7, outbid(7)),
            (&["b"], 9, Vote::Granted),
            // The counters that are smaller are raised all the same.
            (&["a", "b", "c"], 8, outbid(9)),
            (&["a", "c"], 8, outbid(8)),
        ]
        .into_iter()
        .enumerate()
        {
            let acquire = acquire(number as u128, 10, Some(fence));
            assert_eq!(execute_all(&node, keys, acquire), expected, "{keys:?}");
            tokio::time::advance(Duration::from_millis(10)).await;
        }
    }

    /// None of these keys exists for long.
    #[tokio::test(start_paused = true)]
    async fn expired_marks_and_left_over_readers_do_not_pile_up() {
        let node = paused();
        let mut most = 0;
        for number in 0..10_000 {
            let (key, token) = (format!("k{number}"), token(number));
            if number < 5000 {
                let mark = Some(ttl(10));
                execute_as(
                    &node,
                    Access::Writer,
                    &key,
                    Operation::Probe { token, mark },
                );
            } else {
                let reader = Access::Reader { insists: false };
                execute_as(&node, reader, &key, acquire(number, 10, None));
                assert!(node.remove(&key));
            }
            most = most.max(node.store().stored());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(most <= 128, "{most} for 10 that have not expired");
    }

    #[tokio::test(start_paused = true)]
    async fn a_counter_is_remembered_for_a_day() {
        let node = paused();
        let operation = |number| acquire(number, 10, Some(7));
        let minute = Duration::from_secs(60);
        assert_eq!(execute(&node, "k", operation(0)), Vote::Granted);
        for number in 1..24 * 60 {
            tokio::time::advance(minute).await;
            let vote = execute(&node, "k", operation(number));
            assert_eq!(vote, outbid(7), "after {number} minutes");
        }
        tokio::time::advance(minute).await;
        assert_eq!(execute(&node, "k", operation(0)), Vote::Granted);
        for number in 0..10_000 {
            execute(&node, &format!("k{number}"), operation(number));
            tokio::time::advance(minute).await;
        }
        let stored = node.store().stored();
        assert!(
            stored <= 3 * 24 * 60,
            "{stored} counters for those of a day"
        );
    }
}
