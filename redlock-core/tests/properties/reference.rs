//! A second telling of a lease's life, to compare the first with.
//!
//! It is written the other way round on purpose: where [`Lease`] is a machine with a state that
//! each input changes, this is a story told from the beginning, with a log of all inputs at hand.
//! Control flow is the state; votes are never kept but counted again from the whole log; "can a
//! majority still grant it?" takes the place of "is it blocked?".
//!
//! It leaves out the parts that have properties of their own: the arithmetic of validity, of the retry
//! schedule and of renewal, and the random bits of a retry delay, which is taken from the lease if
//! it lies within the schedule's bounds.
//!
//! This file begins the story and ends it; `acquiring` and `holding` tell what is in between, `votes`
//! counts for them, and `purse` has the fences that are proposed.
//!
//! [`Lease`]: redlock_core::Lease

mod acquiring;
mod holding;
mod purse;
mod votes;

use std::{collections::HashSet, time::Duration};

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{TestCaseResult, TestRunner},
};
use redlock_core::{
    Access, AcquireFailure, Drift, End, Event, KeepAlive, LeaseConfig, LossReason, NodeSet, Nonce,
    Operation, Quorum, ReleaseVerdict, Share, Slot, SlotSet, Status, Timestamp, Token, Transmit,
    Ttl, Validity,
};

use self::purse::Purse;
use crate::{
    check,
    drive::{Driven, Entry, Input, Life, lives},
    finds,
};

/// What the lease must have done and said after one input.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Expected {
    sent: Vec<Request>,
    told: Vec<Event>,
    status: Status,
    valid_until: Option<Timestamp>,
    timeout: Option<Timestamp>,
    extending: Option<bool>,
    attempts: u32,
    longest_ttl: Ttl,
}

/// A request without its id.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Request {
    nodes: NodeSet,
    operation: Operation,
    access: Access,
    asks_for_votes: bool,
}

impl Expected {
    fn observed(entry: &Entry) -> Self {
        let lease = &entry.after;
        let sent = entry.sent.iter().map(|sent| Request {
            nodes: sent.nodes,
            operation: sent.operation,
            access: sent.access,
            asks_for_votes: sent.asks_for_votes,
        });
        Self {
            sent: sent.collect(),
            told: entry.told.clone(),
            status: lease.status(),
            valid_until: lease.valid_until(entry.now),
            timeout: lease.poll_timeout(),
            extending: entry.extending,
            attempts: lease.attempts(),
            longest_ttl: lease.longest_ttl(),
        }
    }
}

/// A reader that is not in yet, and one that is.
const READER: Access = Access::Reader { insists: false };
const READER_WITHIN: Access = Access::Reader { insists: true };

/// The log is told to its end.
#[derive(Debug)]
struct LogEnds;

/// Goes through the log from the first input to the last.
struct Story<'a> {
    config: &'a LeaseConfig,
    /// For how long the lease tries.
    budget: Duration,
    nonce: Nonce,
    log: &'a [Entry],
    expected: Vec<Expected>,
    requests: usize,
    now: Timestamp,
    status: Status,
    /// Until when the lock is held, if it is.
    held_until: Option<Timestamp>,
    timeout: Option<Timestamp>,
    /// The keys of the requests.
    access: Access,
    /// The slots that may be asked for, if it is a semaphore.
    wanted: SlotSet,
    attempts: u32,
    longest_ttl: Ttl,
}

impl<'a> Story<'a> {
    fn of(config: &'a LeaseConfig, life: &Life, log: &'a [Entry]) -> Vec<Expected> {
        let mut story = Self {
            config,
            budget: life.budget,
            nonce: Nonce::new(life.nonce),
            log,
            expected: Vec::new(),
            requests: 0,
            now: Timestamp::ZERO,
            status: Status::New,
            held_until: None,
            timeout: None,
            access: match life.share {
                Share::Writer => Access::Writer,
                Share::Reader => READER,
                Share::Permit(_) => Access::Slot(Slot::FIRST),
                _ => Access::Exclusive,
            },
            wanted: life.wanted(),
            attempts: 0,
            longest_ttl: config.validity.ttl(),
        };
        let Err(LogEnds) = story.tell_all();
        story.expected
    }

    // The story.

    fn tell_all(&mut self) -> Result<Never, LogEnds> {
        let (begin, purse, adopts_until) = loop {
            let entry = self.next()?;
            let now = entry.now;
            match entry.input {
                Input::Acquire => break (now, None, None),
                Input::AcquireFenced(_) if self.access == READER => break (now, None, None),
                Input::AcquireFenced(proposal) => {
                    break (now, Some(Purse::new(now, proposal)), None);
                }
                Input::Adopt { time, proposal } if self.has_one_owner() => {
                    let purse = proposal.map(|proposal| Purse::new(now, proposal));
                    break (now, purse, Some(now.saturating_add(time)));
                }
                Input::Release => self.end(End::GivenUp)?,
                Input::Abandon => self.exhaust(AcquireFailure::Abandoned, 0)?,
                _ => {}
            }
            if self.status != Status::New {
                return self.silence();
            }
        };
        if let Some(won) = self.acquiring(begin, purse, adopts_until)? {
            self.holding(&won)?;
        }
        self.silence()
    }

    fn silence(&mut self) -> Result<Never, LogEnds> {
        (self.held_until, self.timeout) = (None, None);
        loop {
            self.next()?;
        }
    }

    // Its telling.

    /// Turns to the next input. Anything that is not said otherwise stays as it was.
    fn next(&mut self) -> Result<&'a Entry, LogEnds> {
        self.close();
        let entry = self.log.get(self.expected.len()).ok_or(LogEnds)?;
        self.expected.push(Expected {
            sent: Vec::new(),
            told: Vec::new(),
            status: self.status,
            valid_until: None,
            timeout: None,
            extending: matches!(
                entry.input,
                Input::Extend | Input::ExtendFor(_) | Input::Downgrade | Input::ReleaseAfter(_)
            )
            .then_some(false),
            attempts: self.attempts,
            longest_ttl: self.longest_ttl,
        });
        self.now = entry.now;
        Ok(entry)
    }

    /// Notes how things stand at the end of the input.
    fn close(&mut self) {
        let Some(expected) = self.expected.last_mut() else {
            return;
        };
        expected.status = self.status;
        expected.timeout = self.timeout;
        expected.valid_until = self.held_until.filter(|until| self.now < *until);
        expected.attempts = self.attempts;
        expected.longest_ttl = self.longest_ttl;
    }

    /// Whether nobody else may hold the key beside the lease.
    fn has_one_owner(&self) -> bool {
        matches!(self.access, Access::Exclusive | Access::Writer)
    }

    fn expect(&mut self) -> &mut Expected {
        self.expected
            .last_mut()
            .expect("the story began with an input")
    }

    fn tell(&mut self, event: Event) {
        self.expect().told.push(event);
    }

    fn end(&mut self, end: End) -> Result<(), LogEnds> {
        self.status = Status::Ended(end);
        Ok(())
    }

    fn exhaust(&mut self, failure: AcquireFailure, tries: u32) -> Result<(), LogEnds> {
        self.end(End::Exhausted { failure, tries })
    }

    /// Takes the slot of an attempt from the lease. It is random, but not excluded.
    fn choose_slot(&mut self) {
        let slot = self.log[self.expected.len() - 1].after.slot();
        if let Some(slot) = slot.filter(|slot| self.wanted.contains(*slot)) {
            self.access = Access::Slot(slot);
        }
    }

    /// Asks for votes on which it depends how the story goes on.
    fn ask(&mut self, operation: Operation) -> usize {
        self.send(self.config.quorum.all(), operation, true);
        self.requests - 1
    }

    fn release_in_passing(&mut self, token: Token) {
        self.tell_nodes(self.config.quorum.all(), Operation::Release { token });
    }

    fn tell_nodes(&mut self, nodes: NodeSet, operation: Operation) {
        self.send(nodes, operation, false);
    }

    fn send(&mut self, nodes: NodeSet, operation: Operation, asks_for_votes: bool) {
        if let Operation::Acquire { ttl, .. }
        | Operation::Adopt { ttl, .. }
        | Operation::Extend { ttl, .. } = operation
        {
            self.longest_ttl = self.longest_ttl.max(ttl);
        }
        let access = self.access;
        self.expect().sent.push(Request {
            nodes,
            operation,
            access,
            asks_for_votes,
        });
        self.requests += 1;
    }
}

/// Nothing is of this type: a story has no end but that of the log.
enum Never {}

/// The first input after which the lease and the story differ.
fn compare(driven: &Driven, life: &Life, config: &LeaseConfig) -> TestCaseResult {
    let expected = Story::of(config, life, &driven.log);
    prop_assert_eq!(expected.len(), driven.log.len());
    for (index, (entry, expected)) in driven.log.iter().zip(&expected).enumerate() {
        let observed = Expected::observed(entry);
        let input = (index, entry.now, entry.input);
        prop_assert_eq!(&observed, expected, "after {:?}", input);
    }
    let ids: HashSet<_> = driven.sent.iter().map(|sent| sent.round).collect();
    prop_assert_eq!(ids.len(), driven.sent.len(), "each request has its own");
    Ok(())
}

#[test]
fn a_lease_does_what_the_reference_says() {
    let property = |life: Life| compare(&Driven::through(&life), &life, &life.config);
    check(4500, &lives(), property);
}

/// The negative controls: a reference with another rule is found to differ.
#[test]
fn a_lease_does_not_do_what_another_reference_says() {
    type Change = fn(&mut LeaseConfig);
    let without_drift: Change = |config| {
        config.validity = Validity::new(config.validity.ttl(), Drift::new(0, Duration::ZERO))
            .expect("a ttl is not zero");
    };
    let smaller_quorum: Change = |config| {
        config.quorum = Quorum::majority(1.max(config.quorum.nodes() - 1)).expect("at least one");
    };
    let no_renewal: Change = |config| config.keep_alive = KeepAlive::on_demand(Duration::ZERO);
    let no_retry: Change = |config| config.retry = config.retry.with_max_attempts(1);
    for (name, change) in [
        ("without drift", without_drift),
        ("a smaller quorum", smaller_quorum),
        ("no renewal", no_renewal),
        ("no retry", no_retry),
    ] {
        let found = finds(200, &lives(), |life| {
            let driven = Driven::through(&life);
            let mut config = life.config.clone();
            change(&mut config);
            compare(&driven, &life, &config).is_err()
        });
        assert!(found, "{name}: no life shows it");
    }
    let found = finds(200, &lives(), |life| {
        let driven = Driven::through(&life);
        let mut exclusive = life.clone();
        exclusive.share = Share::Exclusive;
        compare(&driven, &exclusive, &life.config).is_err()
    });
    assert!(found, "no reader: no life shows it");
}

/// The random lives reach what they are meant to test.
#[test]
fn lives_reach_every_kind_of_event() {
    use End::{Exhausted, Lost, Released};
    use Event::{Acquired, ExtendFailed, Extended};
    type Kind = fn(&Entry) -> bool;
    let kinds: [(&str, Kind); 13] = [
        ("adopted", |it| {
            let is_adopted = |sent: &Transmit| matches!(sent.operation, Operation::Adopt { .. });
            it.sent.iter().any(is_adopted)
        }),
        ("given away", |it| it.end() == Some(End::GivenAway)),
        ("fenced", |it| {
            matches!(it.told[..], [Acquired { fence: Some(_), .. }, ..])
        }),
        ("outbid", |it| {
            let is_raise = |operation| matches!(operation, Operation::Fence { .. });
            it.sent.iter().any(|sent| is_raise(sent.operation))
        }),
        ("extended", |it| {
            matches!(it.told[..], [Extended { .. }, ..])
        }),
        ("extend failed", |it| {
            matches!(it.told[..], [ExtendFailed { .. }, ..])
        }),
        ("repaired", |it| {
            let sets = |operation| matches!(operation, Operation::Acquire { .. });
            let mut sent = it.sent.iter();
            sent.any(|sent| !sent.asks_for_votes && sets(sent.operation))
        }),
        ("expired", |it| it.end() == Some(Lost(LossReason::Expired))),
        ("max hold", |it| it.end() == Some(Lost(LossReason::MaxHold))),
        ("keys lost", |it| {
            it.end() == Some(Lost(LossReason::KeysLost))
        }),
        ("released", |it| {
            it.end() == Some(Released(ReleaseVerdict::Released))
        }),
        ("retried", |it| {
            matches!(it.end(), Some(Exhausted { tries: 2.., .. }))
        }),
        ("quarantined", |it| {
            let is_quarantined = |it| matches!(it, AcquireFailure::Quarantined { .. });
            matches!(it.end(), Some(Exhausted { failure, .. }) if is_quarantined(failure))
        }),
    ];
    let mut runner = TestRunner::deterministic();
    let mut live = || lives().new_tree(&mut runner).expect("no filters").current();
    let all: Vec<_> = (0..1000).map(|_| Driven::through(&live())).collect();
    for (name, is_kind) in kinds {
        let count = all.iter().filter(|it| it.log.iter().any(is_kind)).count();
        assert!(count >= 5, "{name}: {count} of 1000 lives");
    }
}
