use std::{
    panic::{RefUnwindSafe, UnwindSafe},
    sync::{Arc, OnceLock},
    task::Waker,
    time::Duration,
};

use futures::{FutureExt, future::select_all};
use redlock_core::{LeaseConfig, NodeId, Quorum, Share, Timestamp, Ttl, Validity};

use super::{Engine, LocalLock, RequestId, Terms};
use crate::{
    Clock, Key, LockOptions, NodeReport, NodeReports, NodeStatus, Objection, OptionsError,
    client_name::ClientName,
    engine::{
        lane::{LaneHandle, Outbox, Prospect},
        queue::{QueueStatus, Role},
        timers::Timers,
        wall_clock::WallClock,
        warning::Outage,
    },
    key::{KeySet, Prefix},
    node::{Member, status},
    observer::Observers,
    options::CommonSettings,
    random::Random,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// The part of a [`Redlock`](crate::Redlock) that all its handles, guards and leases share.
pub(crate) struct Client {
    pub(crate) quorum: Quorum,
    /// One for each node, by the node's id.
    pub(crate) lanes: Box<[LaneHandle]>,
    /// Locked for a few instructions at a time. No code of the user runs meanwhile.
    pub(crate) engine: Arc<Mutex<Engine>>,
    pub(crate) timers: Arc<Timers>,
    /// This process in the lines of keys.
    pub(crate) member: Member,
    /// The name by which the nodes show who has a key, or waits for one.
    pub(crate) client_name: ClientName,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) prefix: Prefix,
    pub(crate) defaults: LockOptions,
    /// The terms of the defaults, once a lock was requested with them.
    pub(crate) default_terms: OnceLock<Arc<Terms>>,
    pub(crate) common: CommonSettings,
    /// The longest ttl that a lock may have.
    pub(crate) max_ttl: Ttl,
    /// How long a node may take to answer.
    pub(crate) node_timeout: Duration,
    /// How long a confirmation of a master counts, if an authority names the master of a node.
    pub(crate) window: Option<Duration>,
    pub(crate) outage: Outage,
    pub(crate) shut_down: AtomicBool,
    /// Proposes fencing tokens. One serves all keys, since tokens need only grow.
    pub(crate) wall_clock: WallClock,
    /// Whether lines of the log about a lock show its keys.
    pub(crate) logs_keys: bool,
    pub(crate) observers: Observers,
    /// How many requests observers were told of.
    pub(crate) observed: AtomicU64,
}

impl Client {
    /// Makes a configuration of options.
    ///
    /// # Errors
    ///
    /// Refuses a lock that could outlive the time for which a restarted node waits, and one that is too short for
    /// the window.
    pub(crate) fn resolve(&self, options: LockOptions) -> Result<LeaseConfig, OptionsError> {
        let config = options.resolve(self.quorum, self.common.drift)?;
        self.check_range(config.validity.ttl())?;
        Ok(config)
    }

    /// Returns what the options of a lock mean, and the defaults where it has none.
    ///
    /// # Errors
    ///
    /// Like [`resolve`](Self::resolve).
    pub(crate) fn terms(&self, options: Option<&LockOptions>) -> Result<Arc<Terms>, OptionsError> {
        let is_default =
            options.is_none_or(|options| options.without_label() == LockOptions::new());
        if let Some(known) = self.default_terms.get().filter(|_| is_default) {
            return Ok(Arc::clone(known));
        }
        let options = options.map_or(self.defaults, |options| options.or(self.defaults));
        let config = self.resolve(options)?;
        let policy = options.policy(&self.common);
        let terms = Arc::new(Terms {
            config: config.into(),
            policy,
            fenced: options.is_fenced(),
            fails_fast: options.fails_fast(),
            adopts_from: None,
        });
        if is_default {
            return Ok(Arc::clone(self.default_terms.get_or_init(|| terms)));
        }
        Ok(terms)
    }

    /// Returns whether a request of this process, but this one, holds one of the keys, or what several may hold at once.
    pub(crate) fn is_held_by_another(&self, keys: &KeySet, own: Option<RequestId>) -> bool {
        let role = match keys.share() {
            Share::Permit(permits) => Role::Permit(permits),
            _ => Role::Lock,
        };
        let engine = self.engine.lock();
        let mut turns = keys.iter().flat_map(|key| engine.queue.turns_of(key, role));
        turns.any(|id| Some(id) != own && engine.get(id).is_some_and(|it| it.is_held()))
    }

    /// Returns how many processes stood before this one in the line of a key when it was last told.
    pub(crate) fn processes_ahead(&self, key: &Key) -> Option<u32> {
        let engine = self.engine.lock();
        let turns = engine.queue.turns_of(key, Role::Lock);
        let turns = || turns.iter().filter_map(|id| engine.get(*id));
        let ahead = turns().find_map(|it| it.watched.ahead());
        ahead.filter(|_| !turns().any(|it| it.is_held()))
    }

    /// Returns how many keys are held or wanted within this process, and how many requests wait.
    pub(crate) fn queue(&self) -> QueueStatus {
        self.engine.lock().queue.status()
    }

    /// Returns how long one more request would wait for a key, after a hold of each of so many other processes.
    pub(crate) fn expected_wait(&self, key: &Key, processes: u32) -> Option<Duration> {
        let now = self.clock.now();
        self.engine.lock().queue.expected_wait(key, now, processes)
    }

    /// Returns the locks that this process holds or asks the nodes for, in the order in which they were requested.
    pub(crate) fn held(&self) -> Vec<LocalLock> {
        let now = self.clock.now();
        let engine = self.engine.lock();
        let turns = engine.queue.turns_and_waiters();
        let described =
            turns.filter_map(|(id, waiting)| Some(engine.get(id)?.describe(now, waiting)));
        described.collect()
    }

    /// Returns how many locks this process holds.
    pub(crate) fn held_count(&self) -> usize {
        let engine = self.engine.lock();
        let turns = engine.queue.turns().filter_map(|id| engine.get(id));
        turns.filter(|it| it.is_held()).count()
    }

    /// Ends all requests that do not hold their locks yet.
    pub(crate) fn stop_acquiring(self: &Arc<Self>) {
        self.change(self.clock.now(), |engine, cx| {
            for id in engine.all() {
                engine.stop_acquiring(cx, id);
            }
        });
    }

    /// Calls the requests that are due. Returns whether there were some.
    pub(crate) fn handle_due(self: &Arc<Self>, now: Timestamp) -> bool {
        self.change(now, |engine, cx| {
            let due = engine.deadlines.take_due(now);
            for id in &due {
                engine.handle_timeout(cx, *id);
            }
            !due.is_empty()
        })
    }

    /// Ends all requests, since nobody will call them any more.
    pub(crate) fn abandon_all(self: &Arc<Self>) {
        self.change(self.clock.now(), |engine, cx| {
            for id in engine.all() {
                engine.update(cx, id, |_, request| request.lease.abandon());
            }
        });
    }

    /// Returns after what time a majority may vote, or `None` if that depends on more than quarantines.
    pub(crate) fn quorum_in(&self) -> Option<Duration> {
        status::quorum_in(&self.nodes(), self.quorum)
    }

    /// Makes a ttl to extend a lock by.
    ///
    /// # Errors
    ///
    /// Refuses a ttl that the drift allowance uses up, and one that no lock may have.
    pub(crate) fn check_ttl(&self, validity: Validity, ttl: Duration) -> Result<Ttl, OptionsError> {
        let ttl = Ttl::new(ttl)?;
        validity.with_ttl(ttl)?;
        self.check_range(ttl)?;
        Ok(ttl)
    }

    fn check_range(&self, ttl: Ttl) -> Result<(), OptionsError> {
        let (ttl, max_ttl) = (ttl.as_duration(), self.max_ttl.as_duration());
        if ttl > max_ttl {
            return Err(OptionsError::LongerThanMaxTtl { ttl, max_ttl });
        }
        if let Some(window) = self.window.filter(|window| ttl / 3 < *window) {
            return Err(OptionsError::ShorterThanThreeWindows { ttl, window });
        }
        Ok(())
    }

    /// Gives the objections the addresses of their nodes, in the order in which the nodes were given.
    pub(crate) fn reports(&self, objections: &[(NodeId, Objection)]) -> NodeReports {
        let report = |(node, objection): &(NodeId, Objection)| NodeReport {
            address: Arc::clone(&self.lanes[node.index()].address),
            objection: objection.clone(),
        };
        let mut objections: Vec<_> = objections.iter().collect();
        objections.sort_by_key(|(node, _)| node.index());
        NodeReports::new(objections.into_iter().map(report).collect())
    }

    /// Returns the status of each node, in the order in which the nodes were given.
    pub(crate) fn nodes(&self) -> Vec<NodeStatus> {
        let now = self.clock.now();
        self.lanes.iter().map(|lane| lane.status(now)).collect()
    }

    /// Returns how many releases were not delivered yet, or never will be.
    pub(crate) fn undelivered(&self) -> usize {
        // Lanes take nothing out meanwhile.
        let engine = self.engine.lock();
        let waiting = engine.outboxes.iter().map(Outbox::releases);
        let taken = self.lanes.iter().map(|it| it.counters.undelivered());
        waiting.chain(taken).sum()
    }

    /// Waits for the next change of a node's status. Listens from the call on, and not only from the first poll.
    pub(crate) fn next_change(&self) -> impl Future<Output = ()> + use<'_> {
        let changes = self.lanes.iter().map(|lane| {
            let mut change = Box::pin(lane.board.changed());
            change.as_mut().enable();
            change
        });
        select_all(changes.collect::<Vec<_>>()).map(drop)
    }

    /// Returns whether a majority of the nodes may vote by `until`. That a node could not be connected to before `since`
    /// is no proof.
    pub(crate) fn majority(&self, now: Timestamp, until: Timestamp, since: Timestamp) -> Prospect {
        let needed = self.quorum.votes();
        let (mut votes, mut in_doubt) = (0, 0);
        for lane in &self.lanes {
            match lane.board.prospect(now, until, since) {
                Prospect::MayVote => votes += 1,
                Prospect::InDoubt => in_doubt += 1,
                Prospect::NoVote => {}
            }
            if votes >= needed {
                return Prospect::MayVote;
            }
        }
        if votes + in_doubt >= needed {
            Prospect::InDoubt
        } else {
            Prospect::NoVote
        }
    }

    /// Ends the pauses between attempts to connect, which are longer than some waits.
    pub(crate) fn want_connections(&self) {
        for lane in &self.lanes {
            lane.board.want_connection();
        }
    }

    /// Returns whether enough nodes for a quorum report when a probed key is gone.
    pub(crate) fn is_notified(&self) -> bool {
        let notifying = self.lanes.iter().filter(|lane| lane.board.notifies());
        notifying.count() >= self.quorum.votes()
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        // The tasks end with their runtime, one after the other.
        self.shut_down.load(Ordering::SeqCst)
            || self.timers.is_closed()
            || self.lanes.iter().any(LaneHandle::is_closed)
    }
}

// No code panics in the middle of a change of state, whatever the user's nodes and clock do. So a panic leaves
// nothing half done that a holder could see.
impl UnwindSafe for Client {}
impl RefUnwindSafe for Client {}

impl Drop for Client {
    fn drop(&mut self) {
        self.timers.close();
        let close = |engine: &mut Engine| -> Vec<_> {
            let outboxes = engine.outboxes.iter_mut();
            outboxes.filter_map(Outbox::close).collect()
        };
        let lanes = close(&mut self.engine.lock());
        lanes.into_iter().for_each(Waker::wake);
    }
}
