//! The validity of every lease: where it comes from, and that keys live as long.

use super::*;

/// The ttl that an input asks a held lock to be extended by.
fn asked_ttl(driven: &Driven, input: Input) -> Ttl {
    let own = driven.config.validity.ttl();
    match input {
        Input::ExtendFor(ttl) if driven.config.keep_alive.renews() => ttl.max(own),
        Input::ExtendFor(ttl) => ttl,
        _ => own,
    }
}

/// Returns whether the lock is to be released later from now on.
fn sets_release(entry: &Entry) -> bool {
    matches!(entry.input, Input::ReleaseAfter(_)) && entry.extending == Some(true)
}

/// Returns until when an extension makes a lock valid, if it succeeds.
fn gained_by(
    validity: redlock_core::Validity,
    extension: Option<(Timestamp, Ttl)>,
) -> Option<Timestamp> {
    let (start, ttl) = extension?;
    Some(validity.with_ttl(ttl).ok()?.until(start))
}

#[test]
fn validity_counts_from_the_start_of_the_last_round_that_succeeded() {
    check_lives(400, |driven| {
        let validity = driven.config.validity;
        let (mut attempt, mut extension) = (None, None);
        let mut promised = None;
        let mut is_gone = false;
        for entry in &driven.log {
            for event in &entry.told {
                match *event {
                    Event::Acquired { valid_until, .. } => {
                        let won = attempt.map(|start| validity.until(start));
                        prop_assert_eq!(Some(valid_until), won);
                        promised = Some(valid_until);
                    }
                    Event::Extended { valid_until } => {
                        let gained = gained_by(validity, extension);
                        prop_assert_eq!(Some(valid_until), promised.max(gained), "raise-only");
                        promised = Some(valid_until);
                    }
                    Event::ExtendFailed { valid_until } => {
                        prop_assert_eq!(Some(valid_until), promised, "takes nothing away");
                    }
                    _ => {}
                }
            }
            is_gone |= sets_release(entry);
            if let Some(valid_until) = entry.after.valid_until(entry.now) {
                // Nobody is told of what an extension has gained that was under way when the holder went.
                if is_gone && Some(valid_until) == gained_by(validity, extension).max(promised) {
                    promised = Some(valid_until);
                }
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
                        let check = Ttl::new(Duration::from_millis(1)).expect("within the range");
                        let asked = if is_gone {
                            check
                        } else {
                            asked_ttl(driven, entry.input)
                        };
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
fn a_failed_extension_releases_nothing() {
    check_lives(400, |driven| {
        for (entry, event) in events(driven) {
            if let Event::ExtendFailed { valid_until } = event {
                prop_assert_eq!(entry.valid_until(), Some(valid_until));
                // A repair may follow.
                let is_repair =
                    |sent: &Transmit| matches!(sent.operation, Operation::Acquire { .. });
                prop_assert!(entry.sent.iter().all(is_repair));
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
        let mut is_gone = false;
        for entry in &driven.log {
            is_gone |= sets_release(entry);
            for event in &entry.told {
                running.take_if(|_| {
                    matches!(event, Event::Extended { .. } | Event::ExtendFailed { .. })
                });
            }
            for sent in &entry.sent {
                match sent.operation {
                    Operation::Acquire { .. } if !is_held(entry) => acquired_at = entry.now,
                    // It is a check, which adds no time.
                    Operation::Extend { .. } if is_gone => {}
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
