//! A second telling of a lease's life, to compare the first with.
//!
//! It is written the other way round on purpose: where [`Lease`] is a machine with a state that
//! each input changes, this is a story told from the beginning, with a log of all inputs at hand.
//! Control flow is the state; votes are never kept but counted again from the whole log; "can a
//! majority still be had?" takes the place of "is it blocked?".
//!
//! Not told again is what has properties of its own: the arithmetic of validity, of the retry
//! schedule and of renewal, and the random bits of a retry delay, which is taken from the lease if
//! it lies within the schedule's bounds.
//!
//! [`Lease`]: redlock_core::Lease

use std::{cell::Cell, collections::BTreeMap, time::Duration};

use proptest::{prelude::*, test_runner::TestCaseResult};
use redlock_core::{
    AcquireFailure, Drift, Event, FencingToken, KeepAlive, LeaseConfig, LossReason, NodeId,
    NodeSet, Nonce, Operation, Quorum, ReleaseVerdict, Reply, Standing, Timestamp, Token, Validity,
};

use crate::{
    check,
    drive::{Driven, Entry, Input, lives},
};

/// What the lease must have done and said after one input.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Expected {
    sent: Vec<(NodeSet, Operation)>,
    told: Vec<Event>,
    standing: Standing,
    timeout: Option<Timestamp>,
    extending: Option<bool>,
}

impl Expected {
    fn observed(entry: &Entry) -> Self {
        let sent = entry.sent.iter().map(|sent| (sent.nodes, sent.operation));
        Self {
            sent: sent.collect(),
            told: entry.told.clone(),
            standing: entry.standing(),
            timeout: entry.after.poll_timeout(),
            extending: entry.extending,
        }
    }
}

/// The log is told to its end.
#[derive(Debug)]
struct LogEnds;

/// Goes through the log from the first input to the last.
struct Story<'a> {
    config: &'a LeaseConfig,
    nonce: Nonce,
    log: &'a [Entry],
    expected: Vec<Expected>,
    requests: usize,
    now: Timestamp,
    /// While the lock is held: until when, and whether renewal fails.
    held: Option<(Timestamp, bool)>,
    timeout: Option<Timestamp>,
}

/// A lock that was won.
struct Won {
    token: Token,
    start: Timestamp,
    valid_until: Timestamp,
    fence: Option<FencingToken>,
}

enum Attempt {
    Won(Won),
    Failed(Timestamp, AcquireFailure),
    GivenUp,
}

impl<'a> Story<'a> {
    fn of(config: &'a LeaseConfig, nonce: u128, log: &'a [Entry]) -> Vec<Expected> {
        let mut story = Self {
            config,
            nonce: Nonce::new(nonce),
            log,
            expected: Vec::new(),
            requests: 0,
            now: Timestamp::ZERO,
            held: None,
            timeout: None,
        };
        let Err(LogEnds) = story.tell_all();
        story.expected
    }

    // The story.

    fn tell_all(&mut self) -> Result<Never, LogEnds> {
        let (begin, proposal) = loop {
            let entry = self.next()?;
            match entry.input {
                Input::Acquire => break (entry.now, None),
                Input::AcquireFenced(proposal) => break (entry.now, Some(proposal)),
                Input::Release => return self.silence(),
                _ => {}
            }
        };
        if let Some(won) = self.acquiring(begin, proposal)? {
            self.holding(&won)?;
        }
        self.silence()
    }

    fn silence(&mut self) -> Result<Never, LogEnds> {
        (self.held, self.timeout) = (None, None);
        loop {
            self.next()?;
        }
    }

    fn acquiring(
        &mut self,
        begin: Timestamp,
        mut proposal: Option<FencingToken>,
    ) -> Result<Option<Won>, LogEnds> {
        let deadline = self.config.retry.deadline(begin);
        let (mut start, mut blame) = (begin, None);
        for number in 1.. {
            let (now, failure) =
                match self.attempt(number, start, &mut proposal, deadline, blame)? {
                    Attempt::Won(won) => return Ok(Some(won)),
                    Attempt::GivenUp => return Ok(None),
                    Attempt::Failed(now, failure) => (now, failure),
                };
            blame = Some(failure);
            self.release(self.nonce.token(number));
            let attempts = number;
            let next = |random| {
                self.config
                    .retry
                    .next_attempt(deadline, number, now, random)
            };
            let hopeless = match failure {
                AcquireFailure::FenceExhausted => true,
                AcquireFailure::Quarantined { until } => until >= deadline,
                _ => false,
            };
            let (Some(soonest), Some(latest), false) = (next(0), next(u64::MAX), hopeless) else {
                self.tell(Event::Exhausted { failure, attempts });
                return Ok(None);
            };
            let drawn = self.log[self.expected.len() - 1].after.poll_timeout();
            let retry = drawn.unwrap_or(soonest).clamp(soonest, latest);
            self.timeout = Some(retry);
            start = loop {
                let entry = self.next()?;
                match entry.input {
                    Input::Release => return Ok(None),
                    Input::Abandon => {
                        let failure = AcquireFailure::Abandoned;
                        self.tell(Event::Exhausted { failure, attempts });
                        return Ok(None);
                    }
                    Input::Timeout if entry.now >= retry && entry.now >= deadline => {
                        self.tell(Event::Exhausted { failure, attempts });
                        return Ok(None);
                    }
                    Input::Timeout if entry.now >= retry => break entry.now,
                    _ => {}
                }
            };
        }
        unreachable!("attempts are counted in u32, and the log is short")
    }

    fn attempt(
        &mut self,
        number: u32,
        start: Timestamp,
        proposal: &mut Option<FencingToken>,
        deadline: Timestamp,
        blame: Option<AcquireFailure>,
    ) -> Result<Attempt, LogEnds> {
        let token = self.nonce.token(number);
        let valid_until = self.config.validity.until(start);
        // The first attempt may outlast the budget.
        let patience = if number > 1 {
            valid_until.min(deadline)
        } else {
            valid_until
        };
        let ttl = self.config.validity.ttl();
        let fence = *proposal;
        let mut request = self.send(Operation::Acquire { token, ttl, fence });
        let mut asked = start;
        let mut fencing = false;
        self.timeout = Some(patience);
        loop {
            let entry = self.next()?;
            let now = entry.now;
            let votes = self.votes(request, asked);
            match entry.input {
                Input::Release => {
                    self.release(token);
                    return Ok(Attempt::GivenUp);
                }
                Input::Abandon => {
                    self.release(token);
                    let failure = AcquireFailure::Abandoned;
                    let attempts = number;
                    self.tell(Event::Exhausted { failure, attempts });
                    return Ok(Attempt::GivenUp);
                }
                Input::Timeout if now >= patience => {
                    let failure = if now >= valid_until {
                        AcquireFailure::TooSlow
                    } else if fencing {
                        AcquireFailure::NoQuorum
                    } else if votes.denied > 0 {
                        AcquireFailure::Contended
                    } else {
                        blame.unwrap_or(AcquireFailure::NoQuorum)
                    };
                    return Ok(Attempt::Failed(now, failure));
                }
                Input::Reply { to, .. } if to == Some(request) => {
                    let ours = if fencing { 0 } else { votes.outbid } + votes.granted;
                    let fence = *proposal;
                    let accepted = votes.majority(votes.granted) || fence.is_none();
                    let outbid = if votes.majority(ours) {
                        if now >= valid_until {
                            return Ok(Attempt::Failed(now, AcquireFailure::TooSlow));
                        }
                        if accepted {
                            return Ok(Attempt::Won(Won {
                                token,
                                start,
                                valid_until,
                                fence,
                            }));
                        }
                        true
                    } else if fencing {
                        votes.hopeless(
                            votes.failed + votes.quarantined + votes.denied + votes.outbid,
                        ) && !votes.hopeless(votes.failed + votes.quarantined + votes.denied)
                    } else {
                        false
                    };
                    let failure = if outbid {
                        let next = votes.counter.max(*proposal).and_then(FencingToken::next);
                        if let Some(fence) = next {
                            *proposal = next;
                            request = self.send(Operation::Fence { token, fence });
                            (asked, fencing) = (now, true);
                            continue;
                        }
                        AcquireFailure::FenceExhausted
                    } else if votes.hopeless(votes.failed) {
                        AcquireFailure::NoQuorum
                    } else if votes.hopeless(votes.failed + votes.quarantined) {
                        match votes.until {
                            Some(until) if !fencing => AcquireFailure::Quarantined { until },
                            _ => AcquireFailure::NoQuorum,
                        }
                    } else if votes.hopeless(votes.failed + votes.quarantined + votes.denied) {
                        AcquireFailure::Contended
                    } else {
                        continue;
                    };
                    return Ok(Attempt::Failed(now, failure));
                }
                _ => {}
            }
        }
    }

    fn holding(&mut self, won: &Won) -> Result<(), LogEnds> {
        let LeaseConfig {
            validity,
            keep_alive,
            ..
        } = self.config;
        let &Won {
            token,
            start,
            fence,
            mut valid_until,
        } = won;
        let ttl = validity.ttl();
        self.tell(Event::Acquired { valid_until, fence });
        let mut uncertain = false;
        let mut due = keep_alive.next_extension(start, start);
        // The request and the start of the extension under way, and of the last that ended, with
        // whether it succeeded.
        let mut extension: Option<(usize, Timestamp)> = None;
        let mut last: Option<(usize, Timestamp, bool)> = None;
        let mut repaired = NodeSet::EMPTY;
        loop {
            let wake = due.filter(|_| extension.is_none()).unwrap_or(valid_until);
            self.timeout = Some(wake.min(valid_until));
            self.held = Some((valid_until, uncertain));
            let entry = self.next()?;
            let now = entry.now;
            match entry.input {
                Input::Acquire | Input::AcquireFenced(_) => {}
                Input::Abandon => return self.lose(token, LossReason::Abandoned),
                // Everything else learns first that the time is over.
                _ if now >= valid_until => {
                    return self.lose(token, self.why_it_ended(start, valid_until));
                }
                Input::Release => return self.releasing(token, now),
                Input::Timeout if now < wake => {}
                Input::Timeout | Input::Extend => {
                    if extension.is_none() {
                        due = None;
                        if keep_alive.allows(start, now) {
                            // A new one takes the place of the last.
                            last = None;
                            let request = self.send(Operation::Extend { token, ttl });
                            extension = Some((request, now));
                        }
                    }
                    if entry.input == Input::Extend {
                        self.expect().extending = Some(extension.is_some());
                    }
                }
                Input::Reply { to, .. } => {
                    if let Some((request, asked)) = extension
                        && to == Some(request)
                    {
                        let votes = self.votes(request, asked);
                        if votes.majority(votes.granted) {
                            valid_until = valid_until.max(validity.until(asked));
                            uncertain = false;
                            due = keep_alive.next_extension(start, asked);
                            last = Some((request, asked, true));
                            extension = None;
                            repaired = NodeSet::EMPTY;
                            self.tell(Event::Extended { valid_until });
                        } else if votes.hopeless(votes.denied) {
                            return self.lose(token, LossReason::KeysLost);
                        } else if votes.hopeless(
                            votes.denied + votes.failed + votes.quarantined + votes.outbid,
                        ) {
                            uncertain = true;
                            due = keep_alive.next_try(start, now);
                            last = Some((request, asked, false));
                            extension = None;
                            self.tell(Event::ExtendFailed { valid_until });
                        }
                    }
                    if let Some((request, asked, succeeded)) = last
                        && to == Some(request)
                    {
                        let votes = self.votes(request, asked);
                        if votes.hopeless(votes.denied) {
                            return self.lose(token, LossReason::KeysLost);
                        }
                        if !succeeded {
                            continue;
                        }
                        let lost = self.denied_by(request).difference(repaired);
                        repaired = repaired.union(lost);
                        if !lost.is_empty() {
                            let fence = None;
                            self.send_to(lost, Operation::Acquire { token, ttl, fence });
                        }
                    }
                }
            }
        }
    }

    /// Whether renewal was over when the validity ended, however late that was noticed.
    fn why_it_ended(&self, start: Timestamp, valid_until: Timestamp) -> LossReason {
        if self.config.keep_alive.allows(start, valid_until) {
            LossReason::Expired
        } else {
            LossReason::MaxHold
        }
    }

    fn lose(&mut self, token: Token, reason: LossReason) -> Result<(), LogEnds> {
        self.release(token);
        self.tell(Event::Lost(reason));
        Ok(())
    }

    fn releasing(&mut self, token: Token, now: Timestamp) -> Result<(), LogEnds> {
        let request = self.release(token);
        let until = now.saturating_add(self.config.validity.ttl().as_duration());
        (self.held, self.timeout) = (None, Some(until));
        let verdict = loop {
            let entry = self.next()?;
            match entry.input {
                Input::Abandon => break ReleaseVerdict::Unconfirmed,
                Input::Timeout if entry.now >= until => break ReleaseVerdict::Unconfirmed,
                Input::Reply { to, .. } if to == Some(request) => {
                    let votes = self.votes(request, Timestamp::MAX);
                    if votes.majority(votes.granted) {
                        break ReleaseVerdict::Released;
                    }
                    if votes.hopeless(votes.failed) {
                        break ReleaseVerdict::Unconfirmed;
                    }
                    if votes.hopeless(votes.denied) {
                        break ReleaseVerdict::NotHeld;
                    }
                    if votes.all == votes.replied {
                        break ReleaseVerdict::Released;
                    }
                }
                _ => {}
            }
        };
        self.tell(Event::Released(verdict));
        Ok(())
    }

    // Its telling.

    /// Turns to the next input. What is not said otherwise stays as it was.
    fn next(&mut self) -> Result<&'a Entry, LogEnds> {
        self.close();
        let entry = self.log.get(self.expected.len()).ok_or(LogEnds)?;
        self.expected.push(Expected {
            sent: Vec::new(),
            told: Vec::new(),
            standing: Standing::NotHeld,
            timeout: None,
            extending: (entry.input == Input::Extend).then_some(false),
        });
        self.now = entry.now;
        Ok(entry)
    }

    /// Notes how things stand at the end of the input.
    fn close(&mut self) {
        let Some(expected) = self.expected.last_mut() else {
            return;
        };
        let now = self.now;
        expected.timeout = self.timeout;
        expected.standing = match self.held {
            Some((valid_until, _)) if now >= valid_until => Standing::NotHeld,
            Some((valid_until, true)) => Standing::Uncertain { valid_until },
            Some((valid_until, false)) => Standing::Held { valid_until },
            None => Standing::NotHeld,
        };
    }

    fn expect(&mut self) -> &mut Expected {
        self.expected
            .last_mut()
            .expect("the story began with an input")
    }

    fn tell(&mut self, event: Event) {
        self.expect().told.push(event);
    }

    fn release(&mut self, token: Token) -> usize {
        self.send(Operation::Release { token })
    }

    fn send(&mut self, operation: Operation) -> usize {
        self.send_to(self.config.quorum.all(), operation)
    }

    fn send_to(&mut self, nodes: NodeSet, operation: Operation) -> usize {
        self.expect().sent.push((nodes, operation));
        self.requests += 1;
        self.requests - 1
    }

    // Its votes.

    /// What each node first replied to a request, up to now.
    fn ballots(&self, request: usize) -> BTreeMap<usize, Reply> {
        let mut ballots = BTreeMap::new();
        for entry in &self.log[..self.expected.len()] {
            if let Input::Reply { to, node, reply } = entry.input
                && to == Some(request)
                && node.index() < self.config.quorum.nodes()
            {
                ballots.entry(node.index()).or_insert(reply);
            }
        }
        ballots
    }

    fn denied_by(&self, request: usize) -> NodeSet {
        let ballots = self.ballots(request);
        let denied = ballots.iter().filter(|(_, reply)| **reply == Reply::Denied);
        denied
            .filter_map(|(index, _)| NodeId::new(*index))
            .collect()
    }

    fn votes(&self, request: usize, asked: Timestamp) -> Votes {
        let ballots = self.ballots(request);
        let mut votes = Votes {
            all: self.config.quorum.nodes(),
            replied: ballots.len(),
            ..Votes::default()
        };
        for reply in ballots.values() {
            match *reply {
                Reply::Quarantined { until } if until > asked => {
                    votes.quarantined += 1;
                    votes.until = votes.until.max(Some(until));
                }
                Reply::Granted | Reply::Quarantined { .. } => votes.granted += 1,
                Reply::Outbid { counter } => {
                    votes.outbid += 1;
                    votes.counter = votes.counter.max(Some(counter));
                }
                Reply::Denied => votes.denied += 1,
                Reply::Refused | Reply::Unknown | Reply::Free | Reply::Taken { .. } => {
                    votes.failed += 1;
                }
            }
        }
        votes
    }
}

/// Nothing is of this type: a story has no end but that of the log.
enum Never {}

/// The replies to one request, counted.
#[derive(Default)]
struct Votes {
    all: usize,
    replied: usize,
    granted: usize,
    quarantined: usize,
    outbid: usize,
    denied: usize,
    failed: usize,
    until: Option<Timestamp>,
    counter: Option<FencingToken>,
}

impl Votes {
    fn majority(&self, yes: usize) -> bool {
        2 * yes > self.all
    }

    /// Whether all nodes but these would not be a majority.
    fn hopeless(&self, no: usize) -> bool {
        !self.majority(self.all - no)
    }
}

/// The first input after which the lease and the story differ.
fn compare(driven: &Driven, nonce: u128, config: &LeaseConfig) -> TestCaseResult {
    let expected = Story::of(config, nonce, &driven.log);
    prop_assert_eq!(expected.len(), driven.log.len());
    for (index, (entry, expected)) in driven.log.iter().zip(&expected).enumerate() {
        let observed = Expected::observed(entry);
        let input = (index, entry.now, entry.input);
        prop_assert_eq!(&observed, expected, "after {:?}", input);
    }
    Ok(())
}

#[test]
fn a_lease_does_what_the_reference_says() {
    check(1500, &lives(), |life| {
        let mut driven = Driven::through(&life);
        driven.finish();
        compare(&driven, life.nonce, &life.config)
    });
}

/// The negative controls: a reference with another rule is found to differ.
#[test]
fn a_lease_does_not_do_what_another_reference_says() {
    type Change = fn(&LeaseConfig) -> LeaseConfig;
    let without_drift: Change = |config| LeaseConfig {
        validity: Validity::new(config.validity.ttl(), Drift::new(0, Duration::ZERO))
            .expect("a ttl is not zero"),
        ..config.clone()
    };
    let smaller_quorum: Change = |config| LeaseConfig {
        quorum: Quorum::majority(1.max(config.quorum.nodes() - 1)).expect("at least one"),
        ..config.clone()
    };
    let no_renewal: Change = |config| LeaseConfig {
        keep_alive: KeepAlive::on_demand(Duration::ZERO),
        ..config.clone()
    };
    let no_retry: Change = |config| LeaseConfig {
        retry: config.retry.with_max_attempts(1),
        ..config.clone()
    };
    for (name, change) in [
        ("without drift", without_drift),
        ("a smaller quorum", smaller_quorum),
        ("no renewal", no_renewal),
        ("no retry", no_retry),
    ] {
        let differ = Cell::new(0u32);
        check(200, &lives(), |life| {
            let driven = Driven::through(&life);
            let differs = compare(&driven, life.nonce, &change(&life.config)).is_err();
            differ.set(differ.get() + u32::from(differs));
            Ok(())
        });
        assert!(differ.get() > 0, "{name}: no life shows it");
    }
}
