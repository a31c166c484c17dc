//! While the lock is held: extensions, repair, loss.

use alloc::boxed::Box;
use core::{mem, time::Duration};

use super::{
    Access, Event, ExpiryAnomaly, LeaseConfig, LossReason, Operation, RoundId, outbox::Outbox,
};
use crate::{
    Eligibility, FencingToken, NodeId, NodeSet, Reply, Timestamp, Token, Ttl,
    round::{Extend, ExtendVerdict},
    tally::Tally,
};

/// More than clocks can differ by during one lease if they only drift.
const CLOCK_STEP: Duration = Duration::from_secs(1);

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub(super) presence: Presence,
    pub(super) valid_until: Timestamp,
    /// Until when a majority keeps the key: later than `valid_until` by the drift allowance.
    pub(super) keys_until: Timestamp,
    /// The round that won or extended the lock last: by its votes the lock is valid until then.
    pub(super) rests_on: Finished,
    pub(super) fenced: Option<Box<Fenced>>,
    pub(super) extension: Extension,
    /// Mostly there are none.
    pub(super) changes: Option<Box<KeyChanges>>,
}

/// Reports that somebody else has changed or deleted the key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct KeyChanges {
    /// The nodes that have reported one since the last extension began.
    on: NodeSet,
    /// Whether the last extension was made because of such reports.
    were_checked: bool,
}

/// The holder of a held lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Presence {
    /// A holder that has not taken the lock yet. Renewal starts when it does.
    Awaited { since: Timestamp },
    /// A holder that has taken the lock. The longest hold counts from the start of the attempt that won, or from the
    /// time at which the lock was handed over, or at which the last reader joined.
    Present { since: Timestamp },
    /// Nobody. The lock is released at this time, and not renewed before. Instead of a renewal, a check finds out
    /// whether it is lost.
    Gone { until: Timestamp },
}

/// The parts of the lease that a held lock needs to act.
pub(super) struct Context<'a> {
    pub(super) now: Timestamp,
    pub(super) token: Token,
    pub(super) config: &'a LeaseConfig,
    pub(super) outbox: &'a mut Outbox,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Extension {
    /// No extension is under way.
    Idle {
        /// When the next renewal is due, if renewal has not ended.
        due: Option<Timestamp>,
        last: Last,
    },
    Running {
        id: RoundId,
        ttl: Ttl,
        round: Box<Extend>,
    },
}

/// The last extension. Nodes may report late that they lost our key: then it is put back on them, or they prove that
/// the lock is lost.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Last {
    /// There was none: the lock rests on the round that won it.
    None,
    /// The lock rests on it. Before, it was valid until this time.
    Extended {
        old_valid_until: Timestamp,
    },
    Failed(Box<Finished>),
}

/// A round that has had its verdict, and counts replies that come later.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Finished {
    id: RoundId,
    pub(super) tally: Tally,
}

impl Finished {
    pub(super) fn new(id: RoundId, mut tally: Tally) -> Self {
        tally.forget_reasons();
        Self { id, tally }
    }

    /// Counts a reply to this round. Returns whether it was counted.
    fn handle_reply(
        &mut self,
        now: Timestamp,
        id: RoundId,
        node: NodeId,
        reply: Reply,
        eligibility: Eligibility,
    ) -> bool {
        let is_counted = self.id == id && self.tally.record(now, node, reply, eligibility);
        self.tally.forget_reasons();
        is_counted
    }

    /// Takes a node's vote back, unless all votes were counted before `since`. Returns whether a quorum is left.
    ///
    /// One time is kept for all votes. If the latest of them is in doubt, the vote of the node is.
    fn withdraw(&mut self, node: NodeId, since: Timestamp) -> bool {
        let tally = &mut self.tally;
        let is_taken_back = since <= tally.latest_vote && tally.withdraw(node);
        tally.forget_reasons();
        !is_taken_back || tally.is_quorum(tally.granted)
    }
}

/// The fencing token of a held lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Fenced {
    pub(super) fence: FencingToken,
    /// The round by whose votes the token is ours. The other nodes may have our key and a smaller counter.
    pub(super) by: Finished,
}

impl Held {
    /// Returns when something is to be done if no reply comes before.
    pub(super) fn timeout(&self) -> Timestamp {
        let end = match self.presence {
            Presence::Awaited { .. } => return self.valid_until,
            Presence::Present { .. } => self.valid_until,
            Presence::Gone { until } => until,
        };
        match &self.extension {
            Extension::Idle { due: Some(due), .. } => end.min(*due),
            _ => end,
        }
    }

    /// Notes that the holder has taken the lock.
    pub(super) fn claim(&mut self, cx: &mut Context<'_>) {
        if let Presence::Awaited { since } = self.presence {
            self.presence = Presence::Present { since };
            self.check_key(cx);
        }
    }

    /// Passes the lock to its next holder, who has to claim it. Returns false if nobody has the lock to pass it on.
    pub(super) fn hand_over(&mut self, cx: &Context<'_>) -> bool {
        let joined = self.join(cx);
        if joined {
            self.presence = Presence::Awaited { since: cx.now };
        }
        joined
    }

    /// Adds another holder. Returns false if nobody has the lock to share it.
    pub(super) fn join(&mut self, cx: &Context<'_>) -> bool {
        let now = cx.now;
        match &mut self.presence {
            Presence::Awaited { since } | Presence::Present { since } => *since = now,
            Presence::Gone { .. } => return false,
        }
        if let Extension::Idle {
            due: due @ None, ..
        } = &mut self.extension
        {
            // Renewal had ended, and validity may be over before the next extension would be due.
            let renews = cx.config.keep_alive.next_extension(now, now).is_some();
            *due = renews.then_some(now);
        }
        true
    }

    /// Notes that the holder has gone, and that the lock is to be released at `until`. Returns false, and changes
    /// nothing, if it has gone before, or if the lock is not valid until then.
    ///
    /// The lock is checked at once: from then on the nodes report when somebody else deletes its keys. And they let the keys
    /// live for no longer than the lock is to be kept, in case the process ends first.
    pub(super) fn release_at(&mut self, cx: &mut Context<'_>, until: Timestamp) -> bool {
        let is_set = !self.has_no_holder() && until <= self.valid_until;
        if is_set {
            self.presence = Presence::Gone { until };
            if cx.now < until {
                let span = until.saturating_duration_since(cx.now);
                if let Ok(validity) = cx.config.validity.lasting(span) {
                    let keys_until = cx.now.saturating_add(validity.ttl().as_duration());
                    self.keys_until = self.keys_until.min(keys_until);
                }
                self.start_extension(cx, Ttl::at_least(Duration::ZERO));
            }
        }
        is_set
    }

    /// Returns whether the holder has gone.
    pub(super) const fn has_no_holder(&self) -> bool {
        matches!(self.presence, Presence::Gone { .. })
    }

    /// Returns whether the holder has gone, and the lock is to be released now.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        matches!(self.presence, Presence::Gone { until } if until <= now)
    }

    /// Returns why the lock is lost if its validity is over.
    pub(super) fn expiry(&self, now: Timestamp, config: &LeaseConfig) -> Option<LossReason> {
        if now < self.valid_until {
            return None;
        }
        // Asked of the end of validity, since this may be noticed much later.
        Some(if self.allows_extension(self.valid_until, config) {
            LossReason::Expired
        } else {
            LossReason::MaxHold
        })
    }

    /// Starts an extension that turns the lock into one of a reader. Returns whether it has started.
    ///
    /// The lock rests on the same nodes as before until the extension succeeds. A node on which it has not arrived yet
    /// has the key for this holder alone, which keeps writers out as well as a reader does.
    pub(super) fn downgrade(&mut self, cx: &mut Context<'_>) -> bool {
        if self.has_no_holder() || !self.allows_extension(cx.now, cx.config) {
            return false;
        }
        let reader = Access::Reader { insists: true };
        cx.outbox.aim_at(reader, None);
        // A reader's token cannot be fenced.
        self.fenced = None;
        // Where an extension that is under way arrives later, it finds a reader, and changes nothing.
        let ttl = cx.config.validity.ttl();
        let ttl = match self.extension {
            Extension::Running { ttl: running, .. } => ttl.max(running),
            Extension::Idle { .. } => ttl,
        };
        self.start_extension(cx, ttl);
        true
    }

    /// Takes the report of a node that somebody else has changed or deleted the key. Once so many nodes have reported
    /// it that no majority can have our key, an extension finds out whether the lock is lost.
    ///
    /// A lock whose renewal has ended is not extended for this. One that is not claimed yet is extended when it is
    /// claimed. Reports that prove to be wrong lead to one extension for each one that was due anyway, whatever
    /// somebody does to the key.
    pub(super) fn handle_key_changed(&mut self, cx: &mut Context<'_>, node: NodeId) {
        self.changes.get_or_insert_default().on.insert(node);
        self.check_key(cx);
    }

    fn check_key(&mut self, cx: &mut Context<'_>) {
        let Some(changes) = &self.changes else {
            return;
        };
        let is_watched = match self.presence {
            Presence::Awaited { .. } => false,
            Presence::Present { .. } => cx.config.keep_alive.renews(),
            Presence::Gone { .. } => true,
        };
        let is_due = is_watched
            && self.rests_on.tally.is_blocking(changes.on)
            && !changes.were_checked
            && matches!(self.extension, Extension::Idle { .. });
        if is_due && self.renew(cx) {
            self.changes.get_or_insert_default().were_checked = true;
        }
    }

    /// Extends the lock by its own ttl. Checks a lock whose holder has gone, by an extension that adds no time. Returns
    /// whether an extension is under way now.
    pub(super) fn renew(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.has_no_holder() {
            return self.extend(cx, cx.config.validity.ttl());
        }
        if matches!(self.extension, Extension::Idle { .. }) {
            self.start_extension(cx, Ttl::at_least(Duration::ZERO));
        }
        true
    }

    /// Starts an extension, unless one for at least this ttl is under way. Returns whether one is now.
    pub(super) fn extend(&mut self, cx: &mut Context<'_>, ttl: Ttl) -> bool {
        let (validity, keep_alive) = (cx.config.validity, cx.config.keep_alive);
        if self.has_no_holder() {
            return false;
        }
        // Otherwise an extension that ends before the next renewal would put the renewal off.
        let ttl = if keep_alive.renews() {
            ttl.max(validity.ttl())
        } else {
            ttl
        };
        if matches!(self.extension, Extension::Running { ttl: running, .. } if running >= ttl) {
            return true;
        }
        if !self.allows_extension(cx.now, cx.config) {
            // Renewal has ended, and with it its timer.
            if let Extension::Idle { due, .. } = &mut self.extension {
                *due = None;
            }
            return false;
        }
        self.start_extension(cx, ttl);
        true
    }

    fn start_extension(&mut self, cx: &mut Context<'_>, ttl: Ttl) {
        let (now, quorum) = (cx.now, cx.config.quorum);
        self.changes = None;
        if self.was_never_extended() {
            self.repair(cx, self.rests_on.tally.denied);
        }
        let operation = Operation::Extend {
            token: cx.token,
            ttl: self.ttl_to_send(now, ttl),
            shortens: self.has_no_holder(),
        };
        let validity = cx.config.validity.for_ttl(ttl);
        self.extension = Extension::Running {
            id: cx.outbox.ask(quorum.all(), operation),
            ttl,
            round: Box::new(Extend::new(quorum, validity, self.valid_until, now)),
        };
    }

    /// Counts a reply to an extension, or a late vote for the round that the lock rests on. Returns why
    /// the lock is lost, if it is.
    pub(super) fn handle_reply(
        &mut self,
        cx: &mut Context<'_>,
        id: RoundId,
        node: NodeId,
        reply: Reply,
        eligibility: Eligibility,
    ) -> Option<LossReason> {
        let now = cx.now;
        if let Extension::Running {
            id: current, round, ..
        } = &mut self.extension
            && *current == id
        {
            let verdict = round.handle_reply(now, node, reply, eligibility)?;
            return self.conclude_extension(cx, verdict);
        }
        let mut is_first = false;
        for round in self.relied_on() {
            is_first |= round.handle_reply(now, id, node, reply, eligibility);
        }
        if let Extension::Idle {
            last: Last::Failed(last),
            ..
        } = &mut self.extension
        {
            // Nothing rests on a vote for it.
            is_first |= last.handle_reply(now, id, node, reply, Eligibility::NEVER);
        }
        self.hasten(cx.config);
        // A reply after the verdict can still show the loss.
        if is_first
            && reply == Reply::Denied
            && let Some(last) = self.last_extension()
            && last.id == id
        {
            if last.tally.is_blocking(last.tally.denied) {
                return Some(LossReason::KeysLost);
            }
            self.repair(cx, NodeSet::from(node));
        }
        None
    }

    /// Takes a node's votes out if they were counted at `since` or later. Returns why the lock is lost,
    /// if the other votes are too few.
    pub(super) fn withdraw(
        &mut self,
        cx: &mut Context<'_>,
        node: NodeId,
        since: Timestamp,
        eligibility: Eligibility,
    ) -> Option<LossReason> {
        let has_quorum = self.relied_on().all(|round| round.withdraw(node, since));
        if !has_quorum {
            return Some(LossReason::VotesWithdrawn);
        }
        let Extension::Running { round, .. } = &mut self.extension else {
            return None;
        };
        let verdict = round.withdraw(cx.now, node, eligibility)?;
        self.conclude_extension(cx, verdict)
    }

    /// Judges what a node said of the key's time to live before an extension.
    pub(super) fn judge_remaining(
        &self,
        now: Timestamp,
        id: RoundId,
        remaining: Duration,
        longest: Ttl,
    ) -> Option<ExpiryAnomaly> {
        let (extension, old_valid_until) = match &self.extension {
            Extension::Running { id, .. } => (*id, self.valid_until),
            Extension::Idle { last, .. } => match last {
                Last::None => return None,
                Last::Extended { old_valid_until } => (self.rests_on.id, *old_valid_until),
                Last::Failed(last) => (last.id, self.valid_until),
            },
        };
        if extension != id {
            return None;
        }
        let old_valid_until = match self.presence {
            Presence::Gone { until } => until.min(old_valid_until),
            _ => old_valid_until,
        };
        // The node answered a while ago, when more time was left. And validity ends before the keys do, by
        // the drift allowance.
        let needed = old_valid_until.saturating_duration_since(now);
        if remaining < needed {
            Some(ExpiryAnomaly::TooShort { needed })
        } else if remaining > longest.as_duration() + CLOCK_STEP {
            Some(ExpiryAnomaly::TooLong { longest })
        } else {
            None
        }
    }

    fn conclude_extension(
        &mut self,
        cx: &mut Context<'_>,
        verdict: ExtendVerdict,
    ) -> Option<LossReason> {
        let idle = Extension::Idle {
            due: None,
            last: Last::None,
        };
        let Extension::Running { id, ttl, round } = mem::replace(&mut self.extension, idle) else {
            return None;
        };
        let keep_alive = cx.config.keep_alive;
        let tally = round.into_tally();
        let denied = tally.denied;
        let (due, last, event) = match verdict {
            ExtendVerdict::KeysLost => return Some(LossReason::KeysLost),
            ExtendVerdict::Extended { valid_until } => {
                let old_valid_until = mem::replace(&mut self.valid_until, valid_until);
                let keys_until = tally.start.saturating_add(ttl.as_duration());
                self.keys_until = self.keys_until.max(keys_until);
                let due = keep_alive.next_extension(self.since(), tally.start);
                self.rests_on = Finished::new(id, tally);
                let last = Last::Extended { old_valid_until };
                (due, last, Event::Extended { valid_until })
            }
            ExtendVerdict::Failed => {
                let valid_until = self.valid_until;
                let due = keep_alive.next_try(self.since(), cx.now);
                let last = Last::Failed(Box::new(Finished::new(id, tally.without_votes())));
                (due, last, Event::ExtendFailed { valid_until })
            }
        };
        self.extension = Extension::Idle { due, last };
        self.repair(cx, denied);
        if matches!(verdict, ExtendVerdict::Extended { .. }) {
            self.raise_counters(cx, denied);
        }
        // Without a holder, nobody is there to learn of an extension.
        let is_check = self.has_no_holder();
        cx.outbox
            .tell(if is_check { Event::Checked } else { event });
        self.check_key(cx);
        None
    }

    /// Sets our key on nodes that do not have it, and the fencing counter with it. The reply is not counted, so
    /// this wins nothing by itself. It keeps the lock alive, and its token in force, when nodes restart one
    /// after the other, or when a node that voted is gone and another client had the key on a third one before.
    ///
    /// This is safe even if the last extension failed. The next extension succeeds only within the validity, and
    /// until then no other client can get a majority. On a node that votes for it, our key was set after any
    /// earlier key of another client, and lives at least as long as the new validity.
    ///
    /// A node whose counter is larger keeps the counter. A node that has another client's key keeps that
    /// key; the next extension finds our key missing there, and tries again.
    fn repair(&self, cx: &mut Context<'_>, nodes: NodeSet) {
        if !nodes.is_empty() {
            let ttl = if self.has_no_holder() {
                Ttl::at_least(Duration::ZERO)
            } else {
                cx.config.validity.ttl()
            };
            let operation = Operation::Acquire {
                token: cx.token,
                ttl: self.ttl_to_send(cx.now, ttl),
                fence: self.fenced.as_ref().map(|fenced| fenced.fence),
            };
            cx.outbox.tell_nodes(nodes, operation);
        }
    }

    /// Raises the fencing counter on nodes that have our key, but did not confirm the round that
    /// settled the token.
    ///
    /// Together with [`Self::repair`] this leaves no node with our key and a smaller counter. A node that
    /// has the key need not have raised the counter, even where one request asked for both: the counter
    /// goes after the key, and may fail alone. So the token is sent again, and outlives the loss of any
    /// one node, and not only of those that did not vote for it.
    fn raise_counters(&self, cx: &mut Context<'_>, lost_on: NodeSet) {
        if let Some(fenced) = &self.fenced {
            let (token, fence) = (cx.token, fenced.fence);
            let by = &fenced.by.tally;
            let nodes = by.quorum.all().difference(by.granted).difference(lost_on);
            if !nodes.is_empty() {
                cx.outbox
                    .tell_nodes(nodes, Operation::Fence { token, fence });
            }
        }
    }

    /// Brings the first extension forward if another client had the key on a node. That client has failed to get
    /// a majority, and has probably released the key since. The extension sets our key there, so that the lock no
    /// longer rests on a bare majority.
    pub(super) fn hasten(&mut self, config: &LeaseConfig) {
        let since = self.since();
        let soon = config.keep_alive.next_try(since, since);
        if self.was_never_extended()
            && !self.rests_on.tally.denied.is_empty()
            && let Extension::Idle { due: Some(due), .. } = &mut self.extension
            && let Some(soon) = soon
        {
            *due = soon.min(*due);
        }
    }

    /// Returns from when on the longest hold counts: never if nobody has the lock.
    const fn since(&self) -> Timestamp {
        match self.presence {
            Presence::Awaited { since } | Presence::Present { since } => since,
            Presence::Gone { .. } => Timestamp::MAX,
        }
    }

    fn allows_extension(&self, at: Timestamp, config: &LeaseConfig) -> bool {
        config.keep_alive.allows(self.since(), at)
    }

    /// Returns whether an extension has ended, and the next one has not started.
    pub(super) fn was_extended(&self) -> bool {
        self.last_extension().is_some()
    }

    /// Returns whether the lock rests on the votes that won it, and no extension has started.
    const fn was_never_extended(&self) -> bool {
        matches!(
            self.extension,
            Extension::Idle {
                last: Last::None,
                ..
            }
        )
    }

    /// Returns the last extension, if it has ended, and the next one has not started.
    fn last_extension(&self) -> Option<&Finished> {
        match &self.extension {
            Extension::Idle { last, .. } => match last {
                Last::None => None,
                Last::Extended { .. } => Some(&self.rests_on),
                Last::Failed(last) => Some(last),
            },
            Extension::Running { .. } => None,
        }
    }

    /// Returns the round that the lock rests on, and the one that its token rests on.
    fn relied_on(&mut self) -> impl Iterator<Item = &mut Finished> {
        let fenced_by = self.fenced.as_mut().map(|fenced| &mut fenced.by);
        [Some(&mut self.rests_on), fenced_by].into_iter().flatten()
    }

    /// Returns the ttl to send for a key that is to live for `ttl` from `now` on: long enough that no
    /// node drops the key before the time that the lock relies on. A node that sets the time to live
    /// without regard to the old one then does no harm.
    fn ttl_to_send(&self, now: Timestamp, ttl: Ttl) -> Ttl {
        let relied_on = self.keys_until.saturating_duration_since(now);
        Ttl::at_least(relied_on).max(ttl)
    }
}
