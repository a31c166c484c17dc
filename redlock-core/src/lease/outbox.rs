use alloc::{boxed::Box, collections::VecDeque};
use core::{mem, time::Duration};

use super::{Access, Event, Operation, RoundId, Transmit};
use crate::{NodeId, NodeSet, Permits, SlotSet, Timestamp, Token, Ttl};

/// By how much a mark outlives the time of the next look, which may be late by a round trip or a timer. Readers wait
/// for so much longer if the writer has died.
const MARK_MARGIN: Duration = Duration::from_millis(100);

/// The requests and events of a lease, until its driver polls them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Outbox {
    rounds: u32,
    longest_ttl: Ttl,
    /// The keys of all requests except probes.
    access: Access,
    /// How many slots probes are about, if the key is that of a semaphore.
    permits: Option<Permits>,
    /// `None` if there is nothing: most leases are held, and neither send nor tell anything for most of the time.
    pending: Option<Box<Pending>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Pending {
    transmits: Queue<Transmit>,
    events: Queue<Event>,
}

impl Outbox {
    /// Creates an empty outbox of a lease whose keys live for `ttl` unless it sends a longer one.
    pub(super) const fn new(ttl: Ttl) -> Self {
        Self {
            rounds: 0,
            longest_ttl: ttl,
            access: Access::Exclusive,
            permits: None,
            pending: None,
        }
    }

    /// Makes the requests from now on about this key, and probes about all slots if there are permits.
    pub(super) const fn aim_at(&mut self, access: Access, permits: Option<Permits>) {
        (self.access, self.permits) = (access, permits);
    }

    /// Returns which key the requests are about.
    pub(super) const fn access(&self) -> Access {
        self.access
    }

    /// Sends a request whose replies are votes.
    pub(super) fn ask(&mut self, nodes: NodeSet, operation: Operation) -> RoundId {
        self.send(nodes, operation, true)
    }

    /// Sends a request that decides nothing.
    pub(super) fn tell_nodes(&mut self, nodes: NodeSet, operation: Operation) {
        self.send(nodes, operation, false);
    }

    /// Asks nodes whether they have the key.
    pub(super) fn probe(&mut self, nodes: NodeSet, token: Token) -> RoundId {
        let round = self.next_round();
        self.push_probe(round, nodes, SlotSet::ALL, token, None);
        round
    }

    /// Asks nodes whether they have the key, or the slots if the key is that of a semaphore. A writer that waits, and
    /// asks them again at `next`, marks the key until then, but for no longer than its own key would live.
    pub(super) fn look(
        &mut self,
        nodes: NodeSet,
        token: Token,
        now: Timestamp,
        next: Timestamp,
    ) -> RoundId {
        let time = next
            .saturating_duration_since(now)
            .saturating_add(MARK_MARGIN);
        let time = time.min(self.longest_ttl.as_duration());
        let mark = (self.access == Access::Writer).then(|| Ttl::at_least(time));
        let round = self.next_round();
        self.push_probe(round, nodes, SlotSet::ALL, token, mark);
        round
    }

    /// Asks one node again, in the round of an earlier probe.
    pub(super) fn probe_again(
        &mut self,
        round: RoundId,
        node: NodeId,
        slots: SlotSet,
        token: Token,
    ) {
        // The mark of the last look is still there.
        self.push_probe(round, NodeSet::from(node), slots, token, None);
    }

    fn push_probe(
        &mut self,
        round: RoundId,
        nodes: NodeSet,
        slots: SlotSet,
        token: Token,
        mark: Option<Ttl>,
    ) {
        let (access, slots) = match self.permits {
            Some(permits) => (Access::Slots, permits.slots().intersection(slots)),
            None => (self.access, SlotSet::EMPTY),
        };
        self.push(Transmit {
            round,
            nodes,
            operation: Operation::Probe { token, mark },
            access,
            slots,
            asks_for_votes: false,
        });
    }

    /// Returns the id of a new round.
    pub(super) fn next_round(&mut self) -> RoundId {
        // Wraps only after four billion rounds of one lease. No old reply is under way by then.
        self.rounds = self.rounds.wrapping_add(1);
        self.last_round()
    }

    /// Tells the holder something.
    pub(super) fn tell(&mut self, event: Event) {
        self.pending_mut().events.push(event);
    }

    pub(super) fn poll_transmit(&mut self) -> Option<Transmit> {
        self.pending.as_mut()?.transmits.pop()
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.pending.as_mut()?.events.pop()
    }

    /// Returns whether everything was polled.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.as_ref().is_none_or(|it| it.is_empty())
    }

    /// Frees the memory of what was polled, if all of it was.
    pub(super) fn shrink(&mut self) {
        self.pending.take_if(|pending| pending.is_empty());
    }

    /// Returns the id of the last round.
    pub(super) const fn last_round(&self) -> RoundId {
        RoundId(self.rounds)
    }

    pub(super) const fn longest_ttl(&self) -> Ttl {
        self.longest_ttl
    }

    fn send(&mut self, nodes: NodeSet, operation: Operation, asks_for_votes: bool) -> RoundId {
        if let Operation::Acquire { ttl, .. }
        | Operation::Adopt { ttl, .. }
        | Operation::Extend { ttl, .. } = operation
        {
            self.longest_ttl = self.longest_ttl.max(ttl);
        }
        let round = self.next_round();
        self.push(Transmit {
            round,
            nodes,
            operation,
            access: self.access,
            slots: SlotSet::EMPTY,
            asks_for_votes,
        });
        round
    }

    fn push(&mut self, transmit: Transmit) {
        self.pending_mut().transmits.push(transmit);
    }

    fn pending_mut(&mut self) -> &mut Pending {
        self.pending.get_or_insert_with(|| {
            Box::new(Pending {
                transmits: Queue::new(),
                events: Queue::new(),
            })
        })
    }
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.transmits.first.is_none() && self.events.first.is_none()
    }
}

/// A queue that needs no memory of its own for its first item.
///
/// A driver polls after each input, so there is rarely more than one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Queue<T> {
    first: Option<T>,
    /// Empty if there is no first item.
    rest: VecDeque<T>,
}

impl<T> Queue<T> {
    const fn new() -> Self {
        Self {
            first: None,
            rest: VecDeque::new(),
        }
    }

    fn push(&mut self, item: T) {
        if self.first.is_none() {
            self.first = Some(item);
        } else {
            self.rest.push_back(item);
        }
    }

    fn pop(&mut self) -> Option<T> {
        // Most polls find nothing, and must cost nothing.
        self.first.as_ref()?;
        let next = self.rest.pop_front();
        mem::replace(&mut self.first, next)
    }
}
