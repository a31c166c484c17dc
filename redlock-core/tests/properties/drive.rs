//! Drives a lease with random operation sequences and logs all that goes in and comes out.

use std::{iter, time::Duration};

use proptest::{collection::vec, option, prelude::*};
use redlock_core::{
    Drift, End, Event, FencingToken, KeepAlive, Lease, LeaseConfig, NodeId, Nonce, Permits, Quorum,
    Reply, RetrySchedule, Share, Slot, SlotSet, Status, Timestamp, Token, Transmit, Ttl, Validity,
};

use crate::said::Said;

/// One call of a lease, and what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Acquire,
    AcquireFenced(FencingToken),
    /// Adopts a lock whose giver holds it for this time yet.
    Adopt {
        time: Duration,
        proposal: Option<FencingToken>,
    },
    Give,
    Claim,
    Extend,
    ExtendFor(Ttl),
    Downgrade,
    Release,
    /// To be released after this time.
    ReleaseAfter(Duration),
    Abandon,
    Timeout,
    /// A reply to the transmission with this number, counted from zero.
    Reply {
        to: usize,
        node: NodeId,
        said: Said,
    },
}

/// A call, when it was, and what the lease did and said then.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) now: Timestamp,
    pub(crate) input: Input,
    pub(crate) after: Lease,
    pub(crate) sent: Vec<Transmit>,
    pub(crate) told: Vec<Event>,
    /// The return value of `extend`, `downgrade` or `release_at`.
    pub(crate) extending: Option<bool>,
}

impl Entry {
    /// How the lease has ended, if it has.
    pub(crate) fn end(&self) -> Option<End> {
        match self.after.status() {
            Status::Ended(end) => Some(end),
            _ => None,
        }
    }
}

/// A lease and the log of its life.
#[derive(Clone, Debug)]
pub(crate) struct Driven {
    nodes: usize,
    budget: Duration,
    lease: Lease,
    now: Timestamp,
    pub(crate) log: Vec<Entry>,
    pub(crate) sent: Vec<Transmit>,
}

impl Driven {
    /// Lives through the steps, and to the end.
    pub(crate) fn through(life: &Life) -> Self {
        let mut lease = Lease::new(life.config.clone(), Nonce::new(life.nonce));
        lease.set_share(life.share);
        lease.prefer_slots(life.preferred);
        lease.exclude_slots(life.excluded);
        let mut driven = Self {
            nodes: life.config.quorum.nodes(),
            budget: life.budget,
            lease,
            now: life.start,
            log: Vec::new(),
            sent: Vec::new(),
        };
        for step in &life.steps {
            driven.step(step);
        }
        driven.finish();
        driven
    }

    fn input(&mut self, input: Input) {
        let extending = self.apply(input);
        let sent: Vec<_> = iter::from_fn(|| self.lease.poll_transmit()).collect();
        let told = iter::from_fn(|| self.lease.poll_event()).collect();
        self.sent.extend(&sent);
        self.log.push(Entry {
            now: self.now,
            input,
            after: self.lease.clone(),
            sent,
            told,
            extending,
        });
    }

    fn apply(&mut self, input: Input) -> Option<bool> {
        let Self {
            lease, now, budget, ..
        } = self;
        let deadline = now.saturating_add(*budget);
        match input {
            Input::Acquire => lease.acquire(*now, deadline),
            Input::AcquireFenced(proposal) => lease.acquire_fenced(*now, deadline, proposal),
            Input::Adopt { time, proposal } => {
                lease.adopt(*now, giver(), now.saturating_add(time), proposal);
            }
            Input::Give => _ = lease.give(*now),
            Input::Claim => lease.claim(*now),
            Input::Extend => return Some(lease.extend(*now)),
            Input::ExtendFor(ttl) => return Some(lease.extend_for(*now, ttl)),
            Input::Downgrade => return Some(lease.downgrade(*now)),
            Input::Release => lease.release(*now),
            Input::ReleaseAfter(time) => {
                return Some(lease.release_at(*now, now.saturating_add(time)));
            }
            Input::Abandon => lease.abandon(),
            Input::Timeout => lease.handle_timeout(*now),
            Input::Reply { to, node, said } => {
                let round = self.sent[to].round;
                lease.handle_reply(*now, round, node, said.reply, said.eligibility());
            }
        }
        None
    }

    fn step(&mut self, step: &Step) {
        self.now = self.now.max(match step.pause {
            Pause::For(pause) => self.now.saturating_add(pause),
            Pause::ToTimeout(offset) => {
                let due = self.lease.poll_timeout().unwrap_or(self.now);
                Timestamp::from_nanos(due.as_nanos().saturating_add_signed(offset))
            }
        });
        match &step.action {
            Action::Call(input) => self.input(*input),
            Action::Reply { back, replies } => {
                let Some(to) = self.sent.len().checked_sub(back + 1) else {
                    return;
                };
                for (index, reply) in replies {
                    let node = NodeId::new(*index).expect("below 64");
                    let said = reply.at(self.now);
                    self.input(Input::Reply { to, node, said });
                }
            }
            Action::Volley {
                first,
                minority,
                replies,
            } => {
                let Some(to) = self.sent.len().checked_sub(1) else {
                    return;
                };
                let [few, most] = replies.map(|reply| reply.at(self.now));
                for count in 0..self.nodes {
                    let node = NodeId::new((first + count) % self.nodes).expect("below 64");
                    let said = if count < *minority { few } else { most };
                    self.input(Input::Reply { to, node, said });
                }
            }
        }
    }

    /// Leaves the lease alone until it has ended: no reply comes any more. What still waits for
    /// the lock after many timeouts, on an endless budget, is released.
    fn finish(&mut self) {
        for _ in 0..30 {
            let Some(due) = self.lease.poll_timeout() else {
                break;
            };
            self.now = self.now.max(due);
            self.input(Input::Timeout);
        }
        self.input(Input::Release);
        // The timeout of a release without an answer.
        if let Some(due) = self.lease.poll_timeout() {
            self.now = self.now.max(due);
            self.input(Input::Timeout);
        }
    }
}

/// The token of a client that has given its lock away.
pub(crate) fn giver() -> Token {
    Nonce::new(0).token(7)
}

/// A whole input of a test.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) config: LeaseConfig,
    /// For how long it tries.
    pub(crate) budget: Duration,
    pub(crate) nonce: u128,
    /// The other holders that the lock may have.
    pub(crate) share: Share,
    /// The slots that a semaphore asks for first, and those that it does not ask for.
    preferred: SlotSet,
    excluded: SlotSet,
    pub(crate) start: Timestamp,
    pub(crate) steps: Vec<Step>,
}

impl Life {
    /// The slots that may be asked for, if it is a semaphore. If all are excluded, the nodes deny any.
    pub(crate) fn wanted(&self) -> SlotSet {
        let Share::Permit(permits) = self.share else {
            return SlotSet::EMPTY;
        };
        let wanted = permits.slots().difference(self.excluded);
        if wanted.is_empty() {
            permits.slots()
        } else {
            wanted
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pause: Pause,
    action: Action,
}

impl Step {
    const fn at_once(input: Input) -> Self {
        Self {
            pause: NO_PAUSE,
            action: Action::Call(input),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Pause {
    For(Duration),
    /// To the next timeout, and a little before or after it.
    ToTimeout(i64),
}

const NO_PAUSE: Pause = Pause::For(Duration::ZERO);

#[derive(Clone, Debug)]
enum Action {
    Call(Input),
    /// Some nodes reply to a request, counted back from the last.
    Reply {
        back: usize,
        replies: Vec<(usize, RelativeReply)>,
    },
    /// All nodes reply to the last request, a few of them like this and the others like that.
    Volley {
        first: usize,
        minority: usize,
        replies: [RelativeReply; 2],
    },
}

/// A reply, perhaps of a node whose quarantine ends so many nanoseconds from now.
#[derive(Clone, Copy, Debug)]
struct RelativeReply {
    reply: Reply,
    votes_in: Option<i64>,
}

impl RelativeReply {
    fn at(self, now: Timestamp) -> Said {
        let votes_from = |offset| now.as_nanos().saturating_add_signed(offset);
        Said {
            reply: self.reply,
            votes_from: Timestamp::from_nanos(self.votes_in.map_or(0, votes_from)),
        }
    }
}

const SECOND: u64 = 1_000_000_000;

fn up_to(most: u64) -> impl Strategy<Value = Duration> {
    (0..=most).prop_map(Duration::from_nanos)
}

fn configs() -> impl Strategy<Value = LeaseConfig> {
    let nodes = prop_oneof![60 => 1..=7usize, 1 => Just(64)];
    let limit = option::weighted(0.3, 0..5u32);
    let delays = [up_to(SECOND / 20), up_to(SECOND / 2)];
    let hold = prop_oneof![4 => up_to(5 * SECOND), 1 => Just(Duration::MAX)];
    // In thousandths of the validity.
    let interval = option::weighted(0.8, 1..1000u32);
    (nodes, 3..3000u64, limit, delays, hold, interval).prop_map(
        |(nodes, ttl, limit, [shortest, more], hold, interval)| {
            let ttl = Ttl::new(Duration::from_millis(ttl)).expect("not zero");
            let validity = Validity::new(ttl, Drift::default()).expect("at least 3 ms");
            let shortest = shortest.max(Duration::from_nanos(1));
            let retry = RetrySchedule::new(shortest..=shortest + more).expect("not empty");
            LeaseConfig::new(
                Quorum::majority(nodes).expect("1 to 64"),
                validity,
                limit.map_or(retry, |limit| retry.with_max_attempts(limit)),
                interval.map_or(KeepAlive::on_demand(hold), |per_mille| {
                    let interval = validity.span() * per_mille / 1000;
                    KeepAlive::every(interval, hold, validity).expect("a part of the validity")
                }),
            )
        },
    )
}

fn replies() -> impl Strategy<Value = RelativeReply> {
    let counter = prop_oneof![3 => 0..40u64, 1 => Just(FencingToken::MAX.get())];
    let outbid = counter.prop_map(|counter| Reply::Outbid {
        counter: FencingToken::new(counter),
    });
    let reply = prop_oneof![
        18 => Just(Reply::Granted),
        4 => Just(Reply::Denied),
        1 => Just(Reply::Refused),
        2 => Just(Reply::Unknown),
        4 => outbid,
        1 => Just(Reply::Free),
    ];
    let votes_in = option::weighted(0.1, -2_000_000_000..2_000_000_000i64);
    (reply, votes_in).prop_map(|(reply, votes_in)| RelativeReply { reply, votes_in })
}

fn volleys() -> impl Strategy<Value = Action> {
    let minority = prop_oneof![2 => Just(0), 3 => 0..4usize];
    (0..64usize, minority, [replies(), replies()]).prop_map(|(first, minority, replies)| {
        Action::Volley {
            first,
            minority,
            replies,
        }
    })
}

fn steps() -> impl Strategy<Value = Step> {
    let pause = prop_oneof![
        24 => Just(NO_PAUSE),
        16 => up_to(SECOND / 1000).prop_map(Pause::For),
        8 => up_to(SECOND / 20).prop_map(Pause::For),
        2 => up_to(SECOND).prop_map(Pause::For),
        1 => up_to(100 * SECOND).prop_map(Pause::For),
        12 => (-1..=1i64).prop_map(Pause::ToTimeout),
    ];
    let fence = (0..40u64).prop_map(|fence| Input::AcquireFenced(FencingToken::new(fence)));
    let extend_for = (1..6000u64).prop_map(|millis| {
        let ttl = Ttl::new(Duration::from_millis(millis));
        Input::ExtendFor(ttl.expect("not zero"))
    });
    let release_after = (1..SECOND).prop_map(|nanos| {
        let time = Duration::from_nanos(nanos);
        Input::ReleaseAfter(time)
    });
    let call = prop_oneof![
        16 => Just(Input::Timeout),
        2 => extend_for,
        6 => Just(Input::Claim),
        8 => Just(Input::Extend),
        2 => Just(Input::Downgrade),
        3 => Just(Input::Give),
        1 => Just(Input::Release),
        3 => release_after,
        1 => Just(Input::Abandon),
        1 => Just(Input::Acquire),
        1 => fence,
    ];
    // Mostly nodes that exist, mostly of the last request.
    let nodes = prop_oneof![9 => 0..7usize, 1 => 0..64usize];
    let back = prop_oneof![8 => Just(0), 2 => 0..5usize, 1 => 0..1000usize];
    let some = (back, vec((nodes, replies()), 1..8));
    let action = prop_oneof![
        6 => call.prop_map(Action::Call),
        3 => some.prop_map(|(back, replies)| Action::Reply { back, replies }),
        5 => volleys(),
    ];
    (pause, action).prop_map(|(pause, action)| Step { pause, action })
}

fn shares() -> impl Strategy<Value = Share> {
    let count = prop_oneof![8 => 1..6usize, 1 => 1..=Permits::MAX];
    let permits = count.prop_map(|count| Permits::new(count).expect("1 to 128"));
    prop_oneof![
        4 => Just(Share::Exclusive),
        1 => Just(Share::Writer),
        1 => Just(Share::Reader),
        1 => permits.prop_map(Share::Permit),
    ]
}

fn slots() -> impl Strategy<Value = SlotSet> {
    let indices = vec(0..6usize, 0..4);
    indices.prop_map(|indices| indices.into_iter().filter_map(Slot::new).collect())
}

/// Lives that begin to acquire, most of them at an ordinary time, and go on at random.
pub(crate) fn lives() -> impl Strategy<Value = Life> {
    let start = prop_oneof![
        8 => 0..1_000_000 * SECOND,
        1 => u64::MAX - 20 * SECOND..=u64::MAX,
    ];
    let proposal = option::of((0..40u64).prop_map(FencingToken::new));
    let adopts =
        (up_to(2 * SECOND), proposal).prop_map(|(time, proposal)| Input::Adopt { time, proposal });
    let first = prop_oneof![
        2 => adopts,
        6 => Just(Input::Acquire),
        4 => (0..40u64).prop_map(|fence| Input::AcquireFenced(FencingToken::new(fence))),
        1 => Just(Input::Timeout),
    ];
    let first = first.prop_map(Step::at_once);
    // Most attempts are answered at once, or few would succeed.
    let then = volleys().prop_map(|action| Step {
        pause: Pause::For(Duration::from_micros(300)),
        action,
    });
    let then = option::weighted(0.8, then);
    // Most holders run as soon as they have the lock.
    let claim = option::weighted(0.9, Just(Step::at_once(Input::Claim)));
    let budget =
        prop_oneof![4 => up_to(5 * SECOND), 1 => Just(Duration::ZERO), 1 => Just(Duration::MAX)];
    let inputs = (
        configs(),
        budget,
        any::<u128>(),
        (shares(), slots(), slots()),
        start,
        first,
        then,
        claim,
        vec(steps(), 0..30),
    );
    inputs.prop_map(
        |(
            config,
            budget,
            nonce,
            (share, preferred, excluded),
            start,
            first,
            then,
            claim,
            later,
        )| {
            let begin = iter::once(first).chain(then).chain(claim);
            let steps = begin.chain(later).collect();
            Life {
                config,
                budget,
                nonce,
                share,
                preferred,
                excluded,
                start: Timestamp::from_nanos(start),
                steps,
            }
        },
    )
}
