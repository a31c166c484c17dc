//! A lock that passes from its holder to the next waiter in this process, without a request to the nodes.

use redlock_core::Timestamp;

use super::{
    Cx, Engine, HeldLease, RequestId,
    held_lease::Generation,
    local::{Held, Others},
    request::Request,
    waiting::Successor,
};
use crate::engine::queue::Succession;

impl HeldLease {
    /// Hands the lock over to the next waiter in this process, or leaves it to other readers, without a request to the
    /// nodes. Returns whether it did. If not, the lock is released.
    pub(crate) fn pass_on(&self, now: Timestamp) -> bool {
        let generation = self.generation;
        self.update(now, |engine, cx, it| engine.pass_on(cx, it, generation))
    }

    /// Likewise, or only releases the lock. The handle ends, too.
    pub(crate) fn end(&mut self, now: Timestamp, passes_on: bool) {
        let generation = self.generation;
        self.update(now, |engine, cx, request| {
            if passes_on {
                engine.pass_on(cx, request, generation);
            } else {
                engine.release(cx, request, generation);
            }
            request.handles -= 1;
        });
        self.handle.id = RequestId::NONE;
    }
}

impl Engine {
    fn pass_on(&mut self, cx: Cx<'_>, request: &mut Request, generation: Generation) -> bool {
        let is_passed_on = if request.lease.is_reader() {
            // In one step with the release, before another one can join.
            request.end_hold(cx.now, generation)
        } else {
            self.try_hand_over(cx, request, generation)
        };
        if !is_passed_on {
            self.release(cx, request, generation);
        }
        is_passed_on
    }

    /// Passes the lock on, or leaves it without a holder until it is known whether other processes wait.
    fn try_hand_over(&mut self, cx: Cx<'_>, request: &mut Request, generation: Generation) -> bool {
        if !request.terms.hands_over()
            || request.keys.has_several()
            || !request.is_generation(generation)
        {
            return false;
        }
        let Some(held) = request.held().filter(|_| request.has_time(cx.now)) else {
            return false;
        };
        let policy = request.policy_of_streak(Some(held));
        match self.next_holder(cx, request, held) {
            Succession::Next { waiter, is_late } => {
                if is_late && request.has_line() && held.others == Others::Unknown {
                    let is_asked = self.ask_for_others(cx, request);
                    request.note_others(if is_asked {
                        Others::Asked
                    } else {
                        Others::Wait
                    });
                }
                self.wake(waiter);
                true
            }
            Succession::StreakIsOver if request.has_line() => match held.others {
                Others::Wait => false,
                Others::None => {
                    let key = request.keys.first();
                    let is_new = self.queue.renew_streak(key, cx.now, &policy);
                    request.note_others(if is_new {
                        Others::Unknown
                    } else {
                        Others::Wait
                    });
                    is_new && self.try_hand_over(cx, request, generation)
                }
                // Nobody can tell.
                Others::Unknown if !self.ask_for_others(cx, request) => {
                    request.note_others(Others::Wait);
                    false
                }
                Others::Unknown | Others::Asked | Others::Decide => {
                    request.await_decision(cx.now, generation);
                    true
                }
            },
            Succession::StreakIsOver | Succession::Nobody => false,
        }
    }

    /// Gives the lock to the next waiter, if the streak of this process is not over.
    fn next_holder(
        &mut self,
        cx: Cx<'_>,
        request: &mut Request,
        held: Held,
    ) -> Succession<Successor> {
        let policy = request.policy_of_streak(Some(held));
        let Self {
            queue, requests, ..
        } = self;
        let next_generation = request.next_generation();
        let next = queue.take_successor(request.place(), cx.now, held.since, &policy, |next| {
            let next = requests.get(next.place as usize).and_then(Option::as_deref);
            next.is_some_and(|next| next.could_take_over(request))
        });
        match next {
            Succession::Next { waiter, is_late } => {
                let served = (request.id, next_generation);
                let next = self.get_mut(waiter).and_then(|it| it.serve(cx.now, served));
                let Some(successor) = next else {
                    return Succession::Nobody;
                };
                request.handles += 1;
                request.hand_over(cx.now, successor.label);
                Succession::Next {
                    waiter: successor,
                    is_late,
                }
            }
            Succession::StreakIsOver => Succession::StreakIsOver,
            Succession::Nobody => Succession::Nobody,
        }
    }

    /// Takes the answer to whether other processes wait.
    pub(super) fn handle_others(&mut self, cx: Cx<'_>, request: &mut Request, is_alone: bool) {
        let Some(held) = request.held() else {
            return;
        };
        if held.others != Others::Decide {
            request.note_others(if is_alone { Others::None } else { Others::Wait });
            return;
        }
        let policy = request.policy_of_streak(Some(held));
        let key = request.keys.first();
        if is_alone && request.has_time(cx.now) && self.queue.renew_streak(key, cx.now, &policy) {
            request.note_others(Others::Unknown);
            if let Succession::Next { waiter, .. } = self.next_holder(cx, request, held) {
                return self.wake(waiter);
            }
        } else {
            request.note_others(Others::Wait);
        }
        request.lease.release(cx.now);
    }

    pub(super) fn wake(&mut self, successor: Successor) {
        self.out.wakers.extend(successor.waker);
    }
}

impl Request {
    /// Returns whether a successor would have time to work, and renewal time to fail and be tried again.
    fn has_time(&self, now: Timestamp) -> bool {
        let left = self.lease.valid_until(now);
        left.is_some_and(|until| {
            let ttl = self.terms.config.validity.ttl();
            until.saturating_duration_since(now) >= ttl.as_duration() / 2
        })
    }
}
