//! How the lock is kept, lost, or given back.

use std::time::Duration;

use redlock_core::{
    End, Event, FencingToken, LeaseConfig, LossReason, NodeSet, Operation, ReleaseVerdict, Status,
    Timestamp, Token, Ttl,
};

use super::{LogEnds, READER, READER_WITHIN, Story, acquiring::Won};
use crate::drive::Input;

/// An extension under way.
struct Extension {
    request: usize,
    asked: Timestamp,
    /// What was asked for. More is sent if the keys are to live longer anyway.
    ttl: Ttl,
}

/// The questions that check a lock whose holder has gone.
fn shortest() -> Ttl {
    Ttl::new(Duration::from_millis(1)).expect("within the range")
}

/// The whole milliseconds from `now` to `until`, and the one that has begun.
fn at_least(until: Timestamp, now: Timestamp) -> Ttl {
    let nanos = until.as_nanos().saturating_sub(now.as_nanos());
    let millis = nanos.div_ceil(1_000_000).clamp(1, Ttl::MAX.as_millis());
    Ttl::new(Duration::from_millis(millis)).expect("within the range")
}

impl Story<'_> {
    pub(super) fn holding(&mut self, won: &Won) -> Result<(), LogEnds> {
        let LeaseConfig {
            validity,
            keep_alive,
            ..
        } = self.config;
        let &Won {
            token,
            start,
            mut fence,
            granted_by,
            request: won_by,
            mut fenced_by,
            mut valid_until,
        } = won;
        let ttl = validity.ttl();
        self.status = Status::Held;
        if self.access == READER {
            self.access = READER_WITHIN;
        }
        self.tell(Event::Acquired {
            valid_until,
            fence,
            granted_by,
        });
        // Until when keys live at least on a majority.
        let mut keys_until = start.saturating_add(ttl.as_duration());
        let mut claimed = false;
        let mut due = keep_alive.next_extension(start, start);
        // The extension under way; and the request and the start of the last that ended.
        let mut extension: Option<Extension> = None;
        let mut last: Option<(usize, Timestamp)> = None;
        let mut repaired = NodeSet::EMPTY;
        // When it is released, if the holder has gone.
        let mut release_at: Option<Timestamp> = None;
        loop {
            let is_first = extension.is_none() && last.is_none();
            let denied = self.denied_by(won_by);
            if is_first && !denied.is_empty() {
                // A lock that began without these nodes is extended soon.
                due = due.min(keep_alive.next_try(start, start).or(due));
            }
            let renews = (claimed || release_at.is_some()) && extension.is_none();
            let end = release_at.unwrap_or(valid_until);
            let wake = due.filter(|_| renews).unwrap_or(end).min(end);
            // Nobody has the lock, so no longest hold counts.
            let since = if release_at.is_some() {
                Timestamp::MAX
            } else {
                start
            };
            self.timeout = Some(wake);
            self.held_until = Some(valid_until);
            let entry = self.next()?;
            let now = entry.now;
            match entry.input {
                Input::Acquire | Input::AcquireFenced(_) | Input::Adopt { .. } => {}
                Input::Abandon => return self.lose(token, LossReason::Abandoned, release_at),
                // At the end of time, a release is over as soon as it has begun.
                Input::Timeout if release_at.is_some() && now == Timestamp::MAX => {
                    self.ask(Operation::Release { token });
                    return self.end(End::Released(ReleaseVerdict::Unconfirmed));
                }
                // Everything else learns first that the time is over.
                _ if release_at.is_some_and(|at| now >= at) => {
                    return self.releasing(token, now);
                }
                _ if now >= valid_until => {
                    return self.lose(token, self.why_it_ended(start, valid_until), None);
                }
                Input::ReleaseAfter(time) => {
                    let at = now.saturating_add(time);
                    let is_set = release_at.is_none() && at <= valid_until;
                    self.expect().extending = Some(is_set);
                    release_at = release_at.or(is_set.then_some(at));
                    if is_set && now < at {
                        // It is checked, and lives no longer than until then.
                        let kept = self.config.validity.lasting(time).expect("it is valid");
                        let kept = now.saturating_add(kept.ttl().as_duration());
                        keys_until = keys_until.min(kept);
                        (due, last) = (None, None);
                        let ttl = at_least(keys_until, now);
                        self.repair_at_first(is_first, denied, token, fence, ttl);
                        extension = Some(Extension {
                            request: self.ask(Operation::Extend {
                                token,
                                ttl,
                                shortens: release_at.is_some(),
                            }),
                            asked: now,
                            ttl: shortest(),
                        });
                    }
                }
                Input::Release => return self.releasing(token, now),
                Input::Give if release_at.is_none() && self.has_one_owner() => {
                    return self.end(End::GivenAway);
                }
                Input::Give => {}
                Input::Claim => claimed = true,
                Input::Timeout if now < wake => {}
                Input::Extend | Input::ExtendFor(_) | Input::Downgrade if release_at.is_some() => {}
                Input::Downgrade if !self.has_one_owner() || !keep_alive.allows(start, now) => {}
                Input::Timeout | Input::Extend | Input::ExtendFor(_) | Input::Downgrade => {
                    let mut wanted = match entry.input {
                        _ if release_at.is_some() => shortest(),
                        Input::ExtendFor(other) if keep_alive.renews() => ttl.max(other),
                        Input::ExtendFor(other) => other,
                        _ => ttl,
                    };
                    if entry.input == Input::Downgrade {
                        wanted = extension.as_ref().map_or(ttl, |it| it.ttl.max(ttl));
                        // A reader has no fence. The extension of a writer is no downgrade.
                        self.access = READER_WITHIN;
                        (fence, fenced_by, extension) = (None, None, None);
                    }
                    let suffices = |it: &Extension| it.ttl >= wanted;
                    if !extension.as_ref().is_some_and(suffices) {
                        due = None;
                        if keep_alive.allows(since, now) {
                            // A new one takes the place of the last.
                            last = None;
                            let own = if release_at.is_some() { wanted } else { ttl };
                            let kept = at_least(keys_until, now);
                            self.repair_at_first(is_first, denied, token, fence, kept.max(own));
                            let ttl = kept.max(wanted);
                            extension = Some(Extension {
                                request: self.ask(Operation::Extend {
                                    token,
                                    ttl,
                                    shortens: release_at.is_some(),
                                }),
                                asked: now,
                                ttl: wanted,
                            });
                        }
                    }
                    if entry.input != Input::Timeout {
                        self.expect().extending = Some(extension.as_ref().is_some_and(suffices));
                    }
                }
                Input::Reply { to, .. } => {
                    let mut just_extended = false;
                    if let Some(Extension {
                        request,
                        asked,
                        ttl,
                    }) = extension
                        && to == request
                    {
                        let votes = self.votes(request, asked);
                        if votes.majority(votes.granted) {
                            if let Ok(validity) = validity.with_ttl(ttl) {
                                valid_until = valid_until.max(validity.until(asked));
                            }
                            keys_until = keys_until.max(asked.saturating_add(ttl.as_duration()));
                            due = keep_alive.next_extension(since, asked);
                            last = Some((request, asked));
                            extension = None;
                            repaired = NodeSet::EMPTY;
                            just_extended = true;
                            self.tell(match release_at {
                                Some(_) => Event::Checked,
                                None => Event::Extended { valid_until },
                            });
                        } else if votes.hopeless(votes.denied) {
                            return self.lose(token, LossReason::KeysLost, release_at);
                        } else if votes.hopeless(
                            votes.denied + votes.failed + votes.quarantined + votes.outbid,
                        ) {
                            due = keep_alive.next_try(since, now);
                            last = Some((request, asked));
                            extension = None;
                            repaired = NodeSet::EMPTY;
                            self.tell(match release_at {
                                Some(_) => Event::Checked,
                                None => Event::ExtendFailed { valid_until },
                            });
                        }
                    }
                    if let Some((request, asked)) = last
                        && to == request
                    {
                        let votes = self.votes(request, asked);
                        if votes.hopeless(votes.denied) {
                            return self.lose(token, LossReason::KeysLost, release_at);
                        }
                        let lost = self.denied_by(request).difference(repaired);
                        repaired = repaired.union(lost);
                        if !lost.is_empty() {
                            let own = if release_at.is_some() {
                                shortest()
                            } else {
                                ttl
                            };
                            let ttl = at_least(keys_until, now).max(own);
                            self.tell_nodes(lost, Operation::Acquire { token, ttl, fence });
                        }
                        if let (Some(fence), Some((request, asked))) = (fence, fenced_by)
                            && just_extended
                        {
                            let all = self.config.quorum.all();
                            let behind = all.difference(self.agreed_to(request, asked, false));
                            let behind = behind.difference(lost);
                            if !behind.is_empty() {
                                self.tell_nodes(behind, Operation::Fence { token, fence });
                            }
                        }
                    }
                }
            }
        }
    }

    /// Sets the key on the nodes that another client had at first.
    fn repair_at_first(
        &mut self,
        is_first: bool,
        denied: NodeSet,
        token: Token,
        fence: Option<FencingToken>,
        ttl: Ttl,
    ) {
        if is_first && !denied.is_empty() {
            let acquire = Operation::Acquire { token, ttl, fence };
            self.tell_nodes(denied, acquire);
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

    fn lose(
        &mut self,
        token: Token,
        reason: LossReason,
        release_at: Option<Timestamp>,
    ) -> Result<(), LogEnds> {
        if release_at.is_some() {
            // Other clients are still to find the keys, and nobody is there to lose them.
            let verdict = match reason {
                LossReason::KeysLost => ReleaseVerdict::NotHeld,
                _ => ReleaseVerdict::Unconfirmed,
            };
            self.end(End::Released(verdict))
        } else {
            self.release_in_passing(token);
            self.end(End::Lost(reason))
        }
    }

    fn releasing(&mut self, token: Token, now: Timestamp) -> Result<(), LogEnds> {
        let request = self.ask(Operation::Release { token });
        let until = now.saturating_add(self.longest_ttl.as_duration());
        (self.held_until, self.timeout) = (None, Some(until));
        self.status = Status::Releasing;
        let verdict = loop {
            let entry = self.next()?;
            match entry.input {
                Input::Abandon => break ReleaseVerdict::Unconfirmed,
                Input::Timeout if entry.now >= until => break ReleaseVerdict::Unconfirmed,
                Input::Reply { to, .. } if to == request => {
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
        self.end(End::Released(verdict))
    }
}
