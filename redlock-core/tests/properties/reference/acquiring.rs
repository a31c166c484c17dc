//! How the lock is had, or not: attempts, and the pauses between them.

use redlock_core::{
    Access, AcquireFailure, End, FencingToken, NodeSet, Operation, Status, Timestamp, Token,
};

use super::{LogEnds, Story, purse::Purse};
use crate::drive::{Input, giver};

/// A lock that was won.
pub(super) struct Won {
    pub(super) token: Token,
    pub(super) start: Timestamp,
    pub(super) valid_until: Timestamp,
    pub(super) fence: Option<FencingToken>,
    pub(super) granted_by: NodeSet,
    /// The request that won.
    pub(super) request: usize,
    /// The request that settled the fence, and when it was sent.
    pub(super) fenced_by: Option<(usize, Timestamp)>,
}

enum Attempt {
    Won(Won),
    Failed(Timestamp, AcquireFailure),
    GivenUp,
}

impl Story<'_> {
    pub(super) fn acquiring(
        &mut self,
        begin: Timestamp,
        mut purse: Option<Purse>,
        adopts_until: Option<Timestamp>,
    ) -> Result<Option<Won>, LogEnds> {
        let deadline = begin.saturating_add(self.budget);
        let (mut start, mut blame) = (begin, None);
        self.status = Status::Asking;
        for number in 1.. {
            let attempt = self.attempt(number, start, &mut purse, deadline, adopts_until, blame)?;
            let (now, failure) = match attempt {
                Attempt::Won(won) => return Ok(Some(won)),
                Attempt::GivenUp => return Ok(None),
                Attempt::Failed(now, failure) => (now, failure),
            };
            blame = Some(failure);
            self.release_in_passing(self.nonce.token(number));
            let attempts = number;
            let retry = &self.config.retry;
            let next = |random| match failure {
                AcquireFailure::Quarantined { until } => {
                    retry.next_in_quarantine(deadline, number, now, until, random)
                }
                _ => retry.next_attempt(deadline, number, now, random),
            };
            let hopeless = failure == AcquireFailure::FenceExhausted || adopts_until.is_some();
            let (Some(soonest), Some(latest), false) = (next(0), next(u64::MAX), hopeless) else {
                self.exhaust(failure, attempts)?;
                return Ok(None);
            };
            let drawn = self.log[self.expected.len() - 1].after.poll_timeout();
            let retry = drawn.unwrap_or(soonest).clamp(soonest, latest);
            self.timeout = Some(retry);
            start = loop {
                let entry = self.next()?;
                match entry.input {
                    Input::Release => {
                        self.delete_mark(number);
                        self.end(End::GivenUp)?;
                        return Ok(None);
                    }
                    Input::Abandon => {
                        self.delete_mark(number);
                        self.exhaust(AcquireFailure::Abandoned, attempts)?;
                        return Ok(None);
                    }
                    Input::Timeout if entry.now >= retry && entry.now >= deadline => {
                        self.delete_mark(number);
                        self.exhaust(failure, attempts)?;
                        return Ok(None);
                    }
                    Input::Timeout if entry.now >= retry => break entry.now,
                    _ => {}
                }
            };
        }
        unreachable!("attempts are counted in u32, and the log is short")
    }

    fn delete_mark(&mut self, attempts: u32) {
        if self.access == Access::Writer {
            self.release_in_passing(self.nonce.token(attempts));
        }
    }

    fn attempt(
        &mut self,
        number: u32,
        start: Timestamp,
        purse: &mut Option<Purse>,
        deadline: Timestamp,
        adopts_until: Option<Timestamp>,
        blame: Option<AcquireFailure>,
    ) -> Result<Attempt, LogEnds> {
        self.attempts = number;
        let token = self.nonce.token(number);
        let valid_until = self.config.validity.until(start);
        let mut wins_until = adopts_until.map_or(valid_until, |until| until.min(valid_until));
        // The first attempt may outlast the budget.
        let mut patience = if number > 1 {
            wins_until.min(deadline)
        } else {
            wins_until
        };
        let ttl = self.config.validity.ttl();
        let mut fence = purse.as_mut().map(|it| it.attempt(start));
        self.choose_slot();
        let mut request = self.ask(match adopts_until {
            Some(_) => Operation::Adopt {
                giver: giver(),
                token,
                ttl,
                fence,
            },
            None => Operation::Acquire { token, ttl, fence },
        });
        let mut asked = start;
        let mut fencing = false;
        self.timeout = Some(patience);
        loop {
            let entry = self.next()?;
            let now = entry.now;
            let votes = self.votes(request, asked);
            if let Some(purse) = purse {
                purse.known.extend(votes.counter);
            }
            match entry.input {
                Input::Release => {
                    self.release_in_passing(token);
                    self.end(End::GivenUp)?;
                    return Ok(Attempt::GivenUp);
                }
                Input::Abandon => {
                    self.release_in_passing(token);
                    self.exhaust(AcquireFailure::Abandoned, number)?;
                    return Ok(Attempt::GivenUp);
                }
                Input::Timeout if now >= patience => {
                    let failure = if now >= wins_until {
                        AcquireFailure::TooSlow
                    } else if !fencing && votes.denied > 0 {
                        AcquireFailure::Contended
                    } else {
                        blame.unwrap_or(AcquireFailure::NoQuorum)
                    };
                    return Ok(Attempt::Failed(now, failure));
                }
                Input::Reply { to, .. } if to == request => {
                    let ours = if fencing { 0 } else { votes.outbid } + votes.granted;
                    let accepted = votes.majority(votes.granted) || fence.is_none();
                    let outbid = if votes.majority(ours) {
                        if now >= wins_until {
                            return Ok(Attempt::Failed(now, AcquireFailure::TooSlow));
                        }
                        if accepted {
                            return Ok(Attempt::Won(Won {
                                token,
                                start,
                                valid_until,
                                fence,
                                request,
                                granted_by: self.agreed_to(request, asked, fence.is_none()),
                                fenced_by: fence.is_some().then_some((request, asked)),
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
                        let next = purse.as_ref().and_then(Purse::next);
                        if let (Some(purse), Some(next)) = (&mut *purse, next) {
                            purse.known.push(next);
                            fence = Some(next);
                            request = self.ask(Operation::Fence { token, fence: next });
                            (asked, fencing) = (now, true);
                            if adopts_until.is_some() {
                                // The keys are this client's by now.
                                (wins_until, patience) = (valid_until, valid_until);
                                self.timeout = Some(patience);
                            }
                            continue;
                        }
                        AcquireFailure::FenceExhausted
                    } else if votes.hopeless(votes.failed) {
                        AcquireFailure::NoQuorum
                    } else if votes.hopeless(votes.failed + votes.quarantined) {
                        match votes.until {
                            // Nobody knows when a node votes whose quarantine never ends.
                            Some(until) if !fencing && until < Timestamp::MAX => {
                                AcquireFailure::Quarantined { until }
                            }
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
}
