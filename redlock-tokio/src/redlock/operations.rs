//! For people on call: who holds a lock, what this process holds, and how to free a lock whose holder is gone.

use std::{fmt, sync::Arc, time::Duration};

use futures::{
    FutureExt, TryFutureExt,
    future::{BoxFuture, join_all},
};
use redlock_core::{Access, NodeId, Slot, Ttl};

use super::Redlock;
use crate::{
    Inspection, Key, KeyError, LocalLock, NodeError, Objection,
    engine::{forced_release::forced_release, lane::LaneHandle},
    inspection::{Found, InspectedNode, Place},
    key::{KeySet, SlotKeys},
    log,
    node::{Command, KeyState, Session, Vote},
};

/// How long a node may take to say what it has: longer than for a lock, since a person who asks may suspect the nodes.
pub(super) const LOOK_UP_LIMIT: Duration = Duration::from_secs(1);

/// For how long a node is owed the release of a key without an end.
const OWED_WITHOUT_END: Duration = Duration::from_secs(3600);

/// What to ask a session about keys, each of which has a state.
pub(super) type LookUp =
    fn(&mut dyn Session, &[Key]) -> BoxFuture<'static, Result<Vec<KeyState>, NodeError>>;

/// For people on call.
impl Redlock {
    /// Returns how many processes stand before this one in the line of a plain lock. Asks no node. Of a lock of several keys,
    /// this is the number in the line in which it waits now.
    ///
    /// The number is from the last time that this process was told: when it joined the line, when it was called, and after
    /// one to ten seconds. `None` means that it stands in no line: no task waits for the lock, or the lock was free, or the
    /// nodes have no lines.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// assert_eq!(redlock.processes_ahead("order:42"), None); // nobody waits
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn processes_ahead(&self, key: impl AsRef<[u8]>) -> Option<u32> {
        let key = Key::with_prefix(&self.client.prefix, key.as_ref()).ok()?;
        self.client.processes_ahead(&key)
    }

    /// Asks all nodes who holds the lock of this key, alone or as a reader, or its permits, and for how long.
    ///
    /// The answer is advice: the lock may change hands at any moment, so never decide by it whether to touch a resource.
    /// A lock that is handed over within a process keeps its value, so the answer names the process, and not the task.
    /// A node that has no vote, because it restarted a moment ago, may have forgotten the lock, or keep one that its
    /// holder has lost. So it does not count, and the verdict is [`Unknown`](crate::Verdict::Unknown) if the other
    /// nodes cannot tell.
    ///
    /// Costs one round trip, and about 75 us of each server's time, since it looks for the permits of up to 128 slots. Waits for
    /// at most a second for a node that does not answer.
    ///
    /// ```
    /// # use redlock_tokio::{Redlock, Verdict};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let redlock = Redlock::builder().embedded().client_name("web-3").build().await?;
    /// let guard = redlock.lock("order:42").await?;
    /// let inspection = redlock.inspect("order:42").await?;
    /// println!("{inspection}"); // order:42: held by web-3 for another 9.999 s ..
    /// let Verdict::Held { by, .. } = inspection.verdict() else {
    ///     unreachable!()
    /// };
    /// assert_eq!(by.client_name(), Some("web-3"));
    /// drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// Fails if the key is not allowed. Nodes that do not answer are part of the inspection.
    pub async fn inspect(&self, key: impl AsRef<[u8]>) -> Result<Inspection, KeyError> {
        let key = Key::with_prefix(&self.client.prefix, key.as_ref())?;
        let look_up: LookUp = |session, keys| {
            let states = session.look_up(&keys[0]).map_ok(|it| vec![it]);
            states.boxed()
        };
        // One key has one inspection.
        Ok(self.inspect_all(&[key], look_up).await.remove(0))
    }

    /// Asks all nodes about these keys, by one request to each.
    pub(super) async fn inspect_all(&self, keys: &[Key], look_up: LookUp) -> Vec<Inspection> {
        let limit = LOOK_UP_LIMIT.max(self.client.node_timeout);
        let now = self.client.clock.now();
        let keys: Arc<[Key]> = keys.into();
        let ask = async |lane: &LaneHandle| {
            let asked = Arc::clone(&keys);
            let found = lane.ask(&self.client.clock, limit, move |session| {
                look_up(session, &asked)
            });
            let (states, eligibility) = found.await?;
            Ok((states.into_iter(), Objection::to_vote(now, eligibility)))
        };
        let mut answers = join_all(self.client.lanes.iter().map(ask)).await;
        let too_few = || NodeError::Unexpected("fewer answers than keys".into());
        let inspect = |key: &Key| {
            let nodes = self.client.lanes.iter().zip(&mut answers);
            let nodes = nodes.map(|(lane, answer)| {
                let (state, objection) = match answer {
                    Ok((states, objection)) => {
                        (states.next().ok_or_else(too_few), objection.clone())
                    }
                    Err(error) => (Err(NodeError::clone(error)), None),
                };
                InspectedNode {
                    address: Arc::clone(&lane.address),
                    state,
                    objection,
                }
            });
            Inspection::new(key.clone(), self.client.quorum, nodes.collect())
        };
        keys.iter().map(inspect).collect()
    }

    /// Deletes what the inspection found, for a holder that is gone and whose lock lives on: each key with the value that
    /// some node had for it, on all nodes, and nothing else. A lock that changed hands since the inspection is left alone.
    ///
    /// **The holder is not asked.** If it still works, two work at once from now on, until it learns of it: within a
    /// round trip if the servers [report](crate::Hold::is_valid) it, and otherwise at its next extension, after a third of its ttl by
    /// default. Look for the process that the inspection names first. Holders of this process, and those that wait for the
    /// lock, are told at once.
    ///
    /// A node that does not answer is owed the release for as long as the key may live, as it is that of a lock. The log
    /// gets a warning with the [name](crate::RedlockBuilder::client_name) of this client and of each holder.
    /// [`Inspection::retain`] leaves out holders that are to stay. Costs one round trip.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let guard = redlock.lock("order:42").await?;
    /// let inspection = redlock.inspect("order:42").await?;
    /// let report = redlock.force_unlock(&inspection).await;
    /// println!("{report}"); // one line for each node
    /// assert!(redlock.inspect("order:42").await?.holders().is_empty());
    /// assert!(guard.extend().await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// The releases are on their way after the first poll. Dropping the future then loses only the report.
    pub async fn force_unlock(&self, inspection: &Inspection) -> UnlockReport {
        let found = inspection.found();
        let keys = self.client.logs_keys;
        let keys = keys.then(|| KeySet::from(inspection.key().clone()).for_log());
        for Found { holder, .. } in found.keys() {
            let token = holder.token().map(tracing::field::display);
            log::warn!(
                keys = keys.as_ref().map(tracing::field::debug),
                token,
                %holder,
                by = %self.client.client_name,
                "a lock is released by force"
            );
        }
        let commands: Vec<_> = found
            .into_iter()
            .filter_map(|(found, remaining)| release_of(inspection.key(), &found, remaining))
            .collect();
        let nodes = self.client.quorum.all().iter().zip(&self.client.lanes);
        let release = async |(node, lane): (NodeId, &LaneHandle)| {
            let commands = commands.iter().cloned();
            let answers = commands.map(|(command, ttl)| forced_release(lane, node, command, ttl));
            let answers = join_all(answers).await;
            let deleted = answers.into_iter().try_fold(0, |deleted, answer| {
                let is_deleted = answer? == Vote::Granted;
                Ok(deleted + usize::from(is_deleted))
            });
            UnlockedNode {
                address: Arc::clone(&lane.address),
                deleted,
            }
        };
        UnlockReport {
            nodes: join_all(nodes.map(release)).await,
        }
    }

    /// Returns the locks that this process holds or asks the nodes for, in the order in which they were requested. Asks no
    /// node.
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let guard = redlock.lock("order:42").await?;
    /// let [lock] = &redlock.held()[..] else {
    ///     unreachable!()
    /// };
    /// let hold = lock.hold.as_ref().expect("it is held");
    /// assert_eq!((hold.token, lock.waiting), (guard.token(), 0));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn held(&self) -> Vec<LocalLock> {
        self.client.held()
    }
}

/// Returns the command that deletes what was found, and for how long a node may have it. `None` for a name that is too long.
fn release_of(key: &Key, found: &Found, remaining: Duration) -> Option<(Command, Ttl)> {
    let (key, access) = match found.place {
        // As that of a writer, whose mark goes with it.
        Place::Lock => (key.clone(), Access::Writer),
        Place::Readers => (key.clone(), Access::Reader { insists: false }),
        Place::Slot(slot) => {
            let name = SlotKeys::name(key.as_bytes(), slot);
            (Key::new(name).ok()?, Access::Slot(Slot::new(slot)?))
        }
    };
    let ttl = Ttl::new(remaining.clamp(Duration::from_millis(1), OWED_WITHOUT_END)).ok()?;
    Some((Command::forced_release(key, &found.holder, access), ttl))
}

/// The answer of each node to [`Redlock::force_unlock`]. `Display` has one line for each node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UnlockReport {
    /// The nodes, in the order in which they were given.
    pub nodes: Vec<UnlockedNode>,
}

/// The answer of one node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UnlockedNode {
    /// The node's address, without credentials.
    pub address: Arc<str>,
    /// How many keys, readers or permits the node had and has deleted. An error means that the node did not answer or
    /// refused. Unless this client lacks the right, the release is sent again until the key must have expired.
    pub deleted: Result<usize, NodeError>,
}

impl fmt::Display for UnlockReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, node) in self.nodes.iter().enumerate() {
            let line = if index == 0 { "" } else { "\n" };
            write!(f, "{line}{}: ", node.address)?;
            match &node.deleted {
                Ok(0) => f.write_str("had nothing of it")?,
                Ok(deleted) => write!(f, "deleted {deleted}")?,
                Err(error) => write!(f, "{error}")?,
            }
        }
        Ok(())
    }
}
