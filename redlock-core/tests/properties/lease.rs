//! What holds of every lease, whatever it is fed and whenever.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{TestCaseResult, TestRunner},
};
use redlock_core::{
    AcquireFailure, Eligibility, Event, FencingToken, LossReason, Operation, ReleaseVerdict, Reply,
    Timestamp, Ttl,
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

/// The ttl that an input asks a held lock to be extended by.
fn asked_ttl(driven: &Driven, input: Input) -> Ttl {
    let own = driven.config.validity.ttl();
    match input {
        Input::ExtendFor(ttl) if driven.config.keep_alive.renews() => ttl.max(own),
        Input::ExtendFor(ttl) => ttl,
        _ => own,
    }
}

fn is_held(entry: &Entry) -> bool {
    entry.valid_until().is_some()
}

fn events(driven: &Driven) -> impl Iterator<Item = (&Entry, Event)> {
    let told = |entry: &Entry| entry.told.clone();
    driven
        .log
        .iter()
        .flat_map(move |entry| told(entry).into_iter().map(move |event| (entry, event)))
}

/// The requests, each with the time at which it was sent, and whether the lock was held then.
fn requests(driven: &Driven) -> impl Iterator<Item = (&Entry, Operation)> {
    driven
        .log
        .iter()
        .flat_map(|entry| entry.sent.iter().map(move |sent| (entry, sent.operation)))
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
            prop_assert_eq!(sleeps, !begun || entry.after.is_closed(), "{:?}", entry);
        }
        prop_assert!(driven.lease.is_closed());
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
                // All that such an input may bring is the time.
                let expired = entry.told.iter().any(|told| matches!(told, Event::Lost(_)));
                prop_assert!(expired || entry.before == entry.after);
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
fn a_closed_lease_stays_closed_and_silent() {
    check_lives(400, |driven| {
        let closed = driven
            .log
            .iter()
            .skip_while(|entry| !entry.after.is_closed());
        for entry in closed.skip(1) {
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
                let asked = entry
                    .sent
                    .iter()
                    .any(|sent| matches!(sent.operation, Operation::Extend { .. }));
                prop_assert!(!asked || extending);
            }
        }
        Ok(())
    });
}

#[test]
fn validity_counts_from_the_start_of_the_last_round_that_succeeded() {
    check_lives(400, |driven| {
        let validity = driven.config.validity;
        let (mut attempt, mut extension) = (None, None);
        let mut promised = None;
        for entry in &driven.log {
            for event in &entry.told {
                match *event {
                    Event::Acquired { valid_until, .. } => {
                        prop_assert_eq!(
                            Some(valid_until),
                            attempt.map(|start| validity.until(start))
                        );
                        promised = Some(valid_until);
                    }
                    Event::Extended { valid_until } => {
                        let gained = extension.and_then(|(start, ttl)| {
                            let validity = validity.with_ttl(ttl).ok()?;
                            Some(validity.until(start))
                        });
                        prop_assert_eq!(Some(valid_until), promised.max(gained), "raise-only");
                        promised = Some(valid_until);
                    }
                    Event::ExtendFailed { valid_until } => {
                        prop_assert_eq!(Some(valid_until), promised, "takes nothing away");
                    }
                    _ => {}
                }
            }
            if let Some(valid_until) = entry.after.valid_until(entry.now) {
                prop_assert_eq!(Some(valid_until), promised);
            }
            for sent in &entry.sent {
                match sent.operation {
                    Operation::Acquire { ttl, .. } if !is_held(entry) => {
                        prop_assert_eq!(ttl, validity.ttl());
                        attempt = Some(entry.now);
                    }
                    Operation::Acquire { ttl, .. } => prop_assert!(ttl >= validity.ttl()),
                    Operation::Extend { ttl, .. } => {
                        let asked = asked_ttl(driven, entry.input);
                        prop_assert!(ttl >= asked);
                        extension = Some((entry.now, asked));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    });
}

#[test]
fn no_key_is_left_less_life_than_the_lock_relies_on() {
    check_lives(400, |driven| {
        for entry in driven.log.iter().filter(|entry| is_held(entry)) {
            let Some(relied_on) = entry.after.valid_until(entry.now) else {
                continue;
            };
            for sent in &entry.sent {
                let (Operation::Acquire { ttl, .. } | Operation::Extend { ttl, .. }) =
                    sent.operation
                else {
                    continue;
                };
                prop_assert!(ttl <= entry.after.longest_ttl());
                let life = entry.now.saturating_add(ttl.as_duration());
                let validity = driven.config.validity.with_ttl(ttl);
                let lasts = validity.is_ok_and(|it| it.until(entry.now) >= relied_on);
                prop_assert!(lasts || life == Timestamp::MAX, "{:?}", entry);
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
            self.first
                .entry(to)
                .or_default()
                .entry(node.index())
                .or_insert(said);
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
fn validity_begins_and_grows_only_by_a_majority_of_grants() {
    check_lives(400, |driven| {
        let mut answers = Answers::default();
        let nodes = driven.nodes();
        for entry in &driven.log {
            let before = entry.before.valid_until(Timestamp::ZERO);
            let after = entry.after.valid_until(Timestamp::ZERO);
            answers.hear(nodes, entry);
            if after.is_none() || after <= before {
                continue;
            }
            let Input::Reply { to: Some(to), .. } = entry.input else {
                prop_assert!(false, "not by a reply");
                continue;
            };
            match answers.sent_at[to].1 {
                Operation::Acquire { fence: None, .. } => {
                    prop_assert!(before.is_none() && answers.granted(to, nodes, true));
                }
                Operation::Acquire { .. } | Operation::Fence { .. } => {
                    prop_assert!(before.is_none() && answers.granted(to, nodes, false));
                }
                Operation::Extend { .. } => {
                    prop_assert!(before.is_some() && answers.granted(to, nodes, false));
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }
        Ok(())
    });
}

#[test]
fn a_fence_was_accepted_by_a_majority_under_the_winning_token() {
    check_lives(400, |driven| {
        let mut answers = Answers::default();
        let fenced = driven.log.iter().find_map(|entry| match entry.input {
            Input::Acquire => Some(false),
            Input::AcquireFenced(_) => Some(true),
            _ => None,
        });
        for entry in &driven.log {
            answers.hear(driven.nodes(), entry);
            for event in &entry.told {
                let Event::Acquired { fence, .. } = *event else {
                    continue;
                };
                prop_assert_eq!(Some(fence.is_some()), fenced);
                let Some(won) = fence else {
                    continue;
                };
                let winner = entry.after.token();
                let accepted = (0..answers.sent_at.len()).any(|number| {
                    let proposed = match answers.sent_at[number].1 {
                        Operation::Acquire { token, fence, .. } => {
                            fence.map(|fence| (token, fence))
                        }
                        Operation::Fence { token, fence } => Some((token, fence)),
                        _ => None,
                    };
                    proposed == Some((winner, won))
                        && answers.granted(number, driven.nodes(), false)
                });
                prop_assert!(accepted, "{won:?}");
            }
        }
        Ok(())
    });
}

#[test]
fn a_further_proposal_is_the_next_after_what_outbid_the_last() {
    check_lives(400, |driven| {
        let mut answers = Answers::default();
        let mut last = None;
        for entry in &driven.log {
            answers.hear(driven.nodes(), entry);
            for sent in entry.sent.iter().filter(|_| !is_held(entry)) {
                let fence = match sent.operation {
                    Operation::Fence { fence, .. } => fence,
                    Operation::Acquire { fence, .. } => {
                        // Each attempt proposes more than the one before, until the last token.
                        prop_assert!(fence > last || last.is_none_or(|it| it == FencingToken::MAX));
                        last = fence;
                        continue;
                    }
                    _ => continue,
                };
                let Input::Reply { to: Some(to), .. } = entry.input else {
                    prop_assert!(false, "nobody outbid");
                    continue;
                };
                let counters = answers.first[&to].values();
                let counters = counters.filter_map(|said| said.counter());
                // Never smaller than the last, whatever a node says of its counter.
                let outbid = counters.max().max(last);
                prop_assert_eq!(Some(fence), outbid.and_then(FencingToken::next));
                last = Some(fence);
            }
        }
        Ok(())
    });
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
        prop_assert_eq!(
            rounds.len(),
            driven.sent.len(),
            "each request has its own id"
        );
        let attempts = usize::try_from(driven.lease.attempts()).expect("few");
        prop_assert_eq!(used.len(), attempts);
        Ok(())
    });
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
                prop_assert!(
                    !released.contains(&token),
                    "{operation:?} after its release"
                );
                open.insert(token.to_ascii());
                prop_assert!(
                    open.len() == 1,
                    "a new attempt before the old one's release"
                );
            }
        }
        prop_assert!(open.is_empty(), "a lease that ended owes nothing");
        Ok(())
    });
}

#[test]
fn a_failed_extension_releases_nothing() {
    check_lives(400, |driven| {
        for (entry, event) in events(driven) {
            if let Event::ExtendFailed { valid_until } = event {
                prop_assert_eq!(entry.valid_until(), Some(valid_until));
                prop_assert!(entry.sent.is_empty());
            }
        }
        Ok(())
    });
}

#[test]
fn no_extension_starts_beyond_max_hold_or_while_one_for_as_long_is_under_way() {
    check_lives(400, |driven| {
        let mut acquired_at = Timestamp::ZERO;
        let mut running = None;
        for entry in &driven.log {
            for event in &entry.told {
                running.take_if(|_| {
                    matches!(event, Event::Extended { .. } | Event::ExtendFailed { .. })
                });
            }
            for sent in &entry.sent {
                match sent.operation {
                    Operation::Acquire { .. } if !is_held(entry) => acquired_at = entry.now,
                    Operation::Extend { .. } => {
                        prop_assert!(driven.config.keep_alive.allows(acquired_at, entry.now));
                        let asked = asked_ttl(driven, entry.input);
                        prop_assert!(running.is_none_or(|running| running < asked));
                        running = Some(asked);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    });
}

#[test]
fn every_life_tells_one_story() {
    check_lives(800, |driven| {
        let begun = driven.log.iter().find_map(|entry| match entry.input {
            Input::Acquire | Input::AcquireFenced(_) => Some(true),
            // Closed before it began.
            Input::Release => Some(false),
            _ => None,
        });
        let given_up = driven.log.iter().any(|entry| {
            entry.input == Input::Release
                && !entry.before.is_closed()
                && entry.before.valid_until(Timestamp::ZERO).is_none()
        });
        let told: Vec<_> = events(driven).map(|(_, event)| event).collect();
        let number = |test: fn(&Event) -> bool| told.iter().filter(|event| test(event)).count();
        let acquired = number(|event| matches!(event, Event::Acquired { .. }));
        let ended = number(|event| matches!(event, Event::Lost(_) | Event::Released(_)));
        let exhausted = number(|event| matches!(event, Event::Exhausted { .. }));
        prop_assert!(acquired <= 1);
        prop_assert_eq!(ended, acquired, "who acquired loses or releases, once");
        if begun != Some(true) {
            prop_assert!(told.is_empty());
        } else if acquired == 1 {
            prop_assert_eq!(exhausted, 0);
            let first = matches!(told.first(), Some(Event::Acquired { .. }));
            prop_assert!(first, "{told:?}");
            prop_assert!(matches!(
                told.last(),
                Some(Event::Lost(_) | Event::Released(_))
            ));
        } else {
            // An attempt that is given up ends without an event.
            prop_assert_eq!(exhausted, usize::from(!given_up));
            prop_assert_eq!(told.len(), exhausted);
        }
        Ok(())
    });
}

/// Never vacuous: the random lives reach what they are meant to test.
#[test]
fn lives_reach_every_kind_of_event() {
    type Kind = fn(&Event) -> bool;
    let kinds: [(&str, Kind); 9] = [
        ("fenced", |event| {
            matches!(event, Event::Acquired { fence: Some(_), .. })
        }),
        ("extended", |event| matches!(event, Event::Extended { .. })),
        ("extend failed", |event| {
            matches!(event, Event::ExtendFailed { .. })
        }),
        ("expired", |event| {
            *event == Event::Lost(LossReason::Expired)
        }),
        ("max hold", |event| {
            *event == Event::Lost(LossReason::MaxHold)
        }),
        ("keys lost", |event| {
            *event == Event::Lost(LossReason::KeysLost)
        }),
        ("released", |event| {
            *event == Event::Released(ReleaseVerdict::Released)
        }),
        ("retried", |event| {
            matches!(event, Event::Exhausted { attempts: 2.., .. })
        }),
        ("quarantined", |event| {
            let quarantined = |failure: &_| matches!(failure, AcquireFailure::Quarantined { .. });
            matches!(event, Event::Exhausted { failure, .. } if quarantined(failure))
        }),
    ];
    let mut runner = TestRunner::deterministic();
    let mut seen = [0; 9];
    let (mut fenced, mut repaired) = (0, 0);
    for _ in 0..1000 {
        let life = lives().new_tree(&mut runner).expect("no filters").current();
        let mut driven = Driven::through(&life);
        driven.finish();
        for (seen, (_, kind)) in seen.iter_mut().zip(kinds) {
            *seen += u32::from(events(&driven).any(|(_, event)| kind(&event)));
        }
        fenced +=
            u32::from(requests(&driven).any(|(_, sent)| matches!(sent, Operation::Fence { .. })));
        repaired += u32::from(
            requests(&driven)
                .any(|(entry, sent)| is_held(entry) && matches!(sent, Operation::Acquire { .. })),
        );
    }
    println!("{fenced} outbid, {repaired} repaired, {seen:?}");
    for (seen, (name, _)) in seen.iter().zip(kinds) {
        assert!(*seen >= 5, "{name}: {seen} of 1000 lives");
    }
    assert!(fenced >= 5 && repaired >= 5);
}
