//! What holds of every lease, for every order of inputs.

mod fences;
mod permits;
mod stories;
mod validity;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    time::Duration,
};

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{TestCaseResult, TestRunner},
};
use redlock_core::{
    AcquireFailure, Eligibility, End, Event, FencingToken, Lease, LossReason, Operation,
    ReleaseVerdict, Reply, Status, Timestamp, Transmit, Ttl,
};

use crate::{
    check,
    drive::{Driven, Entry, Input, lives},
    said::Said,
};

const ALWAYS: Eligibility = Eligibility::ALWAYS;

/// Checks something of lives that are driven to their end.
fn check_lives(cases: u32, property: impl Fn(&Driven) -> TestCaseResult) {
    check(cases, &lives(), |life| {
        let mut driven = Driven::through(&life);
        driven.finish();
        property(&driven)
    });
}

fn is_held(entry: &Entry) -> bool {
    entry.valid_until().is_some()
}

fn events(driven: &Driven) -> impl Iterator<Item = (&Entry, Event)> {
    let log = driven.log.iter();
    log.flat_map(|entry| entry.told.iter().map(move |event| (entry, *event)))
}

/// The requests, each with the time at which it was sent, and whether the lock was held then.
fn requests(driven: &Driven) -> impl Iterator<Item = (&Entry, Operation)> {
    let log = driven.log.iter();
    log.flat_map(|entry| entry.sent.iter().map(move |sent| (entry, sent.operation)))
}

fn has_ended(lease: &Lease) -> bool {
    matches!(lease.status(), Status::Ended(_))
}

#[test]
fn after_a_timeout_the_next_one_is_later() {
    check_lives(400, |driven| {
        for entry in &driven.log {
            if entry.input == Input::Timeout {
                let next = entry.after.poll_timeout();
                prop_assert!(next.is_none_or(|next| next > entry.now), "{:?}", entry);
            }
        }
        Ok(())
    });
}

#[test]
fn only_what_has_not_begun_or_has_ended_has_no_timeout() {
    check_lives(400, |driven| {
        let mut begun = false;
        for entry in &driven.log {
            begun |= matches!(entry.input, Input::Acquire | Input::AcquireFenced(_));
            let sleeps = entry.after.poll_timeout().is_none();
            prop_assert_eq!(sleeps, !begun || has_ended(&entry.after), "{:?}", entry);
        }
        prop_assert!(has_ended(&driven.lease));
        Ok(())
    });
}

#[test]
fn a_timeout_before_its_time_changes_nothing() {
    check_lives(400, |driven| {
        for entry in &driven.log {
            let Some(due) = entry.after.poll_timeout() else {
                continue;
            };
            let early = Timestamp::from_nanos(due.as_nanos().saturating_sub(1));
            let mut lease = entry.after.clone();
            for now in [entry.now, early] {
                if now < due {
                    lease.handle_timeout(now);
                }
            }
            prop_assert_eq!(&lease, &entry.after);
        }
        Ok(())
    });
}

#[test]
fn repeated_stale_and_foreign_replies_change_nothing() {
    check_lives(400, |driven| {
        let mut replied = HashSet::new();
        let mut sent = Vec::new();
        let mut released = HashSet::new();
        for entry in &driven.log {
            for transmit in &entry.sent {
                sent.push((transmit.round, transmit.operation.token()));
                if matches!(transmit.operation, Operation::Release { .. }) {
                    released.insert(transmit.operation.token());
                }
            }
            let Input::Reply { to, node, .. } = entry.input else {
                continue;
            };
            replied.extend(to.map(|to| (to, node)));
            let stranger = node.index() >= driven.nodes();
            if to.is_none() || stranger {
                // All that such an input may bring is the time: of a loss, or of a release.
                let expired = matches!(entry.end(), Some(End::Lost(_)));
                let is_over = is_released(entry);
                prop_assert!(expired || is_over || entry.before == entry.after);
            }
            let mut lease = entry.after.clone();
            for (to, node) in &replied {
                for reply in [Reply::Granted, Reply::Denied, Reply::Unknown] {
                    lease.handle_reply(entry.now, sent[*to].0, *node, reply, ALWAYS);
                }
            }
            prop_assert_eq!(&lease, &entry.after, "repeated");
            let releasing = sent.last().map(|(round, _)| *round);
            for (round, token) in &sent {
                if released.contains(token) && Some(*round) != releasing {
                    for node in driven.config.quorum.all().iter() {
                        lease.handle_reply(entry.now, *round, node, Reply::Granted, ALWAYS);
                    }
                }
            }
            prop_assert_eq!(&lease, &entry.after, "stale");
        }
        Ok(())
    });
}

#[test]
fn a_lease_that_has_ended_stays_so_and_is_silent() {
    check_lives(400, |driven| {
        let ended = driven.log.iter().skip_while(|it| !has_ended(&it.after));
        for entry in ended.skip(1) {
            prop_assert_eq!(&entry.before, &entry.after);
            prop_assert!(entry.sent.is_empty() && entry.told.is_empty());
            prop_assert_ne!(entry.extending, Some(true));
        }
        Ok(())
    });
}

#[test]
fn the_polls_and_getters_agree() {
    check_lives(400, |driven| {
        for entry in &driven.log {
            let lease = &entry.after;
            for now in [entry.now, Timestamp::ZERO, Timestamp::MAX] {
                if let Some(valid_until) = lease.valid_until(now) {
                    prop_assert!(now < valid_until);
                    prop_assert!(lease.poll_timeout().is_some_and(|due| due <= valid_until));
                }
            }
            prop_assert_eq!(lease.clone().poll_transmit(), None);
            prop_assert_eq!(lease.clone().poll_event(), None);
            if let Some(extending) = entry.extending {
                prop_assert!(!extending || is_held(entry));
                let is_extension = |it: &Transmit| matches!(it.operation, Operation::Extend { .. });
                prop_assert!(extending || !entry.sent.iter().any(is_extension));
            }
        }
        Ok(())
    });
}

fn is_released(entry: &Entry) -> bool {
    let mut sent = entry.sent.iter();
    sent.any(|sent| matches!(sent.operation, Operation::Release { .. }))
}

#[test]
fn a_later_release_comes_at_its_time_and_the_lock_is_not_extended() {
    check_lives(400, |driven| {
        let mut release_at = None;
        // The longest life that a key was given so far.
        let mut longest = Timestamp::ZERO;
        for entry in &driven.log {
            for sent in &entry.sent {
                let (Operation::Acquire { ttl, .. } | Operation::Extend { ttl, .. }) =
                    sent.operation
                else {
                    continue;
                };
                let end = entry.now.saturating_add(ttl.as_duration());
                if release_at.is_some() && matches!(sent.operation, Operation::Extend { .. }) {
                    let rounded = longest.saturating_add(Duration::from_millis(1));
                    prop_assert!(end <= rounded, "{:?}", entry);
                }
                longest = longest.max(end);
            }
            if let (Input::ReleaseAfter(time), Some(true)) = (entry.input, entry.extending) {
                release_at = Some(entry.now.saturating_add(time));
            }
            let Some(until) = release_at else {
                continue;
            };
            let not_held = End::Released(ReleaseVerdict::NotHeld);
            let is_lost = entry.end() == Some(not_held);
            if entry.input != Input::Release && !is_lost {
                prop_assert!(!is_released(entry) || until <= entry.now, "{:?}", entry);
            }
            if entry.input == Input::Timeout {
                prop_assert!(!is_held(entry) || entry.now < until, "{:?}", entry);
            }
        }
        Ok(())
    });
}

/// What each transmission was first answered by each node, and when it was sent.
#[derive(Default)]
struct Answers {
    sent_at: Vec<(Timestamp, Operation)>,
    first: BTreeMap<usize, BTreeMap<usize, Said>>,
}

impl Answers {
    /// Takes the reply of an entry before its requests.
    fn hear(&mut self, nodes: usize, entry: &Entry) {
        if let Input::Reply {
            to: Some(to),
            node,
            said,
        } = entry.input
            && node.index() < nodes
        {
            let first = self.first.entry(to).or_default();
            first.entry(node.index()).or_insert(said);
        }
        let sent = entry.sent.iter().map(|sent| (entry.now, sent.operation));
        self.sent_at.extend(sent);
    }

    /// Whether a majority did what was asked, and was not in quarantine when it was.
    fn granted(&self, transmission: usize, nodes: usize, or_outbid: bool) -> bool {
        let (start, _) = self.sent_at[transmission];
        let Some(first) = self.first.get(&transmission) else {
            return false;
        };
        let votes = first.values().filter(|said| match said.reply {
            Reply::Granted => said.votes_at(start),
            Reply::Outbid { .. } => or_outbid && said.votes_at(start),
            _ => false,
        });
        2 * votes.count() > nodes
    }
}

#[test]
fn each_attempt_has_a_fresh_token_and_asks_every_node() {
    check_lives(400, |driven| {
        let mut used = HashSet::new();
        let (mut held, mut agreed) = (None, None);
        for entry in &driven.log {
            for event in &entry.told {
                if let Event::Acquired { fence, .. } = event {
                    agreed = *fence;
                }
            }
            for sent in &entry.sent {
                match sent.operation {
                    // A repair, of nodes that lost the key; the counter comes with it.
                    Operation::Acquire { token, fence, .. } if is_held(entry) => {
                        prop_assert_eq!(Some(token), held);
                        prop_assert_eq!(fence, agreed);
                        prop_assert!(!sent.nodes.is_empty());
                        continue;
                    }
                    // The same for nodes that have the key.
                    Operation::Fence { token, fence } if is_held(entry) => {
                        prop_assert_eq!(Some(token), held);
                        prop_assert_eq!(Some(fence), agreed);
                        prop_assert!(!sent.nodes.is_empty());
                        continue;
                    }
                    Operation::Acquire { token, .. } => prop_assert!(used.insert(token)),
                    _ => {}
                }
                prop_assert_eq!(sent.nodes, driven.config.quorum.all());
            }
            if is_held(entry) {
                held = Some(entry.after.token());
                prop_assert!(used.contains(&entry.after.token()));
            }
        }
        let rounds: HashSet<_> = driven.sent.iter().map(|sent| sent.round).collect();
        // Each request has its own id.
        prop_assert_eq!(rounds.len(), driven.sent.len());
        let attempts = usize::try_from(driven.lease.attempts()).expect("few");
        prop_assert_eq!(used.len(), attempts);
        Ok(())
    });
}

/// Returns whether a lock was to be released later, and the lease ended before that time: its keys are to stay.
fn keeps_its_keys(driven: &Driven) -> bool {
    let mut log = driven.log.iter();
    let is_set =
        |it: &Entry| matches!(it.input, Input::ReleaseAfter(_)) && it.extending == Some(true);
    let ended = |it: End| {
        let verdicts = [ReleaseVerdict::Unconfirmed, ReleaseVerdict::NotHeld];
        verdicts.map(End::Released).contains(&it)
    };
    log.any(is_set) && log.any(|it| it.end().is_some_and(ended) && !is_released(it))
}

#[test]
fn every_token_is_released_last_and_once() {
    check_lives(400, |driven| {
        let mut open = BTreeSet::new();
        let mut released = HashSet::new();
        for (entry, operation) in requests(driven) {
            let token = operation.token();
            if matches!(operation, Operation::Release { .. }) {
                prop_assert!(!is_held(entry), "a lock that is held is not released");
                prop_assert!(open.remove(&token.to_ascii()), "nothing to release");
                released.insert(token);
            } else {
                let is_late = released.contains(&token);
                prop_assert!(!is_late, "{operation:?} after its release");
                open.insert(token.to_ascii());
                prop_assert!(open.len() == 1, "an attempt before the last one's release");
            }
        }
        // A lease that ended owes nothing.
        prop_assert!(open.is_empty() || keeps_its_keys(driven));
        Ok(())
    });
}
