mod holding;
mod in_line;
mod permits;
mod readers;
mod transferring;
mod watching;
mod withdrawing;

use alloc::{sync::Arc, vec::Vec};
use core::time::Duration;

use super::*;
use crate::{
    Drift, Eligibility, KeepAlive, NodeSet, Permits, Quorum, Reply, RetrySchedule, Slot, Validity,
    Withdrawal,
    said::{MS, Said, node},
};

use Reply::{Denied, Granted, Refused, Unknown};

/// Asserts of which kinds these requests are, by their place among those sent.
macro_rules! assert_sent {
    ($driven:ident, $those:expr, $($operation:ident),+) => {
        let sent = $driven.operations();
        assert!(matches!(sent[$those], [$(Operation::$operation { .. }),+]), "{sent:?}");
    };
}
use assert_sent;

fn at(millis: u64) -> Timestamp {
    Timestamp::ZERO.saturating_add(MS(millis))
}

/// Ttl 1000 ms less 100 ms drift; extended every 300 ms for up to 2 s; retried after 20 to 200 ms
/// for up to 1 s.
fn config() -> LeaseConfig {
    let ttl = Ttl::new(MS(1000)).unwrap();
    let validity = Validity::new(ttl, Drift::new(0, MS(100))).unwrap();
    LeaseConfig {
        quorum: Quorum::majority(5).unwrap(),
        validity,
        retry: RetrySchedule::new(MS(20)..=MS(200)).unwrap(),
        keep_alive: KeepAlive::every(MS(300), MS(2000), validity).unwrap(),
    }
}

/// A lease with the requests it sent and the events it told, in order.
#[derive(Clone)]
struct Driven {
    lease: Lease,
    sent: Vec<Transmit>,
    told: Vec<Event>,
}

impl Driven {
    /// The configuration of the lease, to be changed.
    fn config(&mut self) -> &mut LeaseConfig {
        Arc::make_mut(&mut self.lease.config)
    }

    fn new(config: LeaseConfig) -> Self {
        Self {
            lease: Lease::new(config, Nonce::new(7)),
            sent: Vec::new(),
            told: Vec::new(),
        }
    }

    /// A lease that has asked all nodes at time zero.
    fn begun() -> Self {
        let mut driven = Self::new(config());
        driven.acquire(at(0));
        driven
    }

    /// A lease that was acquired by nodes 0 to 2 at time zero; nodes 3 and 4 have not replied.
    fn granted() -> Self {
        let mut driven = Self::begun();
        driven.reply(at(1), &[Granted; 3]);
        assert!(matches!(driven.told[..], [Event::Acquired { .. }]));
        driven
    }

    /// Such a lease, claimed, with no request or event left.
    fn held() -> Self {
        let mut driven = Self::granted();
        driven.run(|lease| lease.claim(at(1)));
        driven.sent.clear();
        driven.told.clear();
        driven
    }

    /// Starts to acquire, for up to a second.
    fn acquire(&mut self, now: Timestamp) {
        self.run(|lease| lease.acquire(now, now.saturating_add(MS(1000))));
    }

    fn run<T>(&mut self, step: impl FnOnce(&mut Lease) -> T) -> T {
        let result = step(&mut self.lease);
        self.sent
            .extend(core::iter::from_fn(|| self.lease.poll_transmit()));
        self.told
            .extend(core::iter::from_fn(|| self.lease.poll_event()));
        result
    }

    /// Answers the last request, from node 0 on.
    fn reply<R: Into<Said> + Copy>(&mut self, now: Timestamp, replies: &[R]) {
        self.reply_to(self.last().round, now, 0, replies);
    }

    fn reply_to<R: Into<Said> + Copy>(
        &mut self,
        round: RoundId,
        now: Timestamp,
        first: usize,
        replies: &[R],
    ) {
        for (index, reply) in replies.iter().enumerate() {
            let node = node(first + index);
            let Said { reply, eligibility } = (*reply).into();
            self.run(|lease| lease.handle_reply(now, round, node, reply, eligibility));
        }
    }

    fn timeout(&mut self, now: Timestamp) {
        self.run(|lease| lease.handle_timeout(now));
    }

    /// When the lease wants its next timeout.
    fn due(&self) -> Timestamp {
        self.lease.poll_timeout().expect("it waits for something")
    }

    /// Lets the next timeout come. Returns when that is.
    fn wait(&mut self) -> Timestamp {
        let due = self.due();
        self.timeout(due);
        due
    }

    fn freed(&mut self, now: Timestamp, nodes: impl IntoIterator<Item = usize>) {
        for index in nodes {
            self.run(|lease| lease.handle_freed(now, node(index), None));
        }
    }

    fn key_changed(&mut self, now: Timestamp, nodes: impl IntoIterator<Item = usize>) {
        for index in nodes {
            self.run(|lease| lease.handle_key_changed(now, node(index)));
        }
    }

    fn withdraw(&mut self, now: Timestamp, nodes: &[usize], withdrawal: Withdrawal) {
        for index in nodes {
            self.run(|lease| lease.handle_withdrawal(now, node(*index), withdrawal));
        }
    }

    fn last(&self) -> Transmit {
        *self.sent.last().expect("a request was sent")
    }

    fn operations(&self) -> Vec<Operation> {
        self.sent.iter().map(|it| it.operation).collect()
    }

    fn accesses(&self) -> Vec<Access> {
        self.sent.iter().map(|it| it.access).collect()
    }

    fn count(&self, test: fn(&Operation) -> bool) -> usize {
        self.operations().iter().filter(|it| test(it)).count()
    }

    /// How the lease has ended, if it has. It has told nothing before.
    fn end(&self) -> Option<End> {
        assert_eq!(self.told, []);
        self.late_end()
    }

    /// How the lease has ended, whatever it has told before.
    fn late_end(&self) -> Option<End> {
        match self.lease.status() {
            Status::Ended(end) => Some(end),
            _ => None,
        }
    }

    fn is_held(&self, now: Timestamp) -> bool {
        self.lease.valid_until(now).is_some()
    }
}

fn only(nodes: &[usize]) -> NodeSet {
    nodes.iter().map(|it| node(*it)).collect()
}

fn permits(count: usize) -> Share {
    Share::Permit(Permits::new(count).unwrap())
}

/// The lock is held by the votes of these nodes, since time zero.
fn acquired(fence: Option<FencingToken>, nodes: &[usize]) -> Event {
    Event::Acquired {
        valid_until: at(900),
        fence,
        granted_by: only(nodes),
    }
}

fn extend_failed(valid_until: Timestamp) -> [Event; 1] {
    [Event::ExtendFailed { valid_until }]
}

fn exhausted(failure: AcquireFailure, tries: u32) -> Option<End> {
    Some(End::Exhausted { failure, tries })
}

fn lost(reason: LossReason) -> Option<End> {
    Some(End::Lost(reason))
}

fn released(verdict: ReleaseVerdict) -> Option<End> {
    Some(End::Released(verdict))
}

fn release_of(token: Token) -> Operation {
    Operation::Release { token }
}

#[test]
fn acquires_with_the_third_vote() {
    let mut driven = Driven::begun();
    assert_eq!(driven.sent[0].nodes, NodeSet::first(5));
    driven.reply(at(5), &[Granted, Granted]);
    assert!(!driven.is_held(at(5)) && driven.told.is_empty());
    driven.reply(at(5), &[Granted, Granted, Granted]);
    // 1000 ms ttl less 100 ms drift, from the start and not from the verdict.
    assert_eq!(driven.lease.valid_until(at(5)), Some(at(900)));
    assert_eq!(driven.told, [acquired(None, &[0, 1, 2])]);
}

#[test]
fn no_token_is_used_twice_not_even_after_four_billion_attempts() {
    let mut driven = Driven::begun();
    driven.lease.attempts = u32::MAX;
    driven.reply(at(1), &[Denied; 3]);
    assert!(matches!(driven.end(), Some(End::Exhausted { .. })));
}

#[test]
fn a_lease_is_small() {
    assert!(size_of::<Lease>() <= 216, "{}", size_of::<Lease>());
}
