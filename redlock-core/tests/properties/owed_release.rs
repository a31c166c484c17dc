//! Releases that are owed, on a connection that breaks at any moment: once a release is settled, the
//! node has no key of ours and never gets one.

use std::time::Duration;

use proptest::{collection::vec, prelude::*, sample::select};
use redlock_core::{OwedRelease, Reply, SetRequestState, Timestamp, Ttl};

use crate::{check, finds};

/// What happens next between a client and one node, after the request to set the key was sent.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The node carries the request out and answers.
    Set,
    /// The connection breaks. The request had this fate, if it was not answered.
    Break(Fate),
    /// The request that was held up arrives.
    LateSet,
    /// The client sends the release, on a connection that breaks before it arrives.
    ReleaseLost,
    /// The client sends the release, and it is carried out. The answer is lost with the connection.
    ReleaseUnanswered,
    /// The client sends the release, and it is carried out and answered.
    Release,
    /// The client cannot send the release.
    ReleaseRefused,
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrived,
    HeldUp,
    Lost,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    use Fate::{Arrived, HeldUp, Lost};
    let all = [
        Step::Set,
        Step::Break(Arrived),
        Step::Break(HeldUp),
        Step::Break(Lost),
        Step::LateSet,
        Step::ReleaseLost,
        Step::ReleaseUnanswered,
        Step::Release,
        Step::Release,
        Step::ReleaseRefused,
    ];
    vec(select(all.to_vec()), 1..12)
}

/// One request to set the key, and the node that it was sent to.
struct World {
    /// The request is on its way on the connection that releases are sent on.
    in_flight: bool,
    /// The request is on its way on a connection that broke.
    held_up: bool,
    has_key: bool,
    requests: SetRequestState,
}

impl World {
    const fn new() -> Self {
        Self {
            in_flight: true,
            held_up: false,
            has_key: false,
            requests: SetRequestState::Sent,
        }
    }

    /// Returns the reply to a release, if the step is one.
    fn apply(&mut self, step: Step) -> Option<Reply> {
        match step {
            Step::Set => self.carry_out(),
            Step::Break(fate) => self.break_up(fate),
            Step::LateSet => self.has_key |= std::mem::take(&mut self.held_up),
            Step::ReleaseLost => {
                self.break_up(Fate::HeldUp);
                return Some(Reply::Unknown);
            }
            Step::ReleaseUnanswered => {
                let was_in_flight = self.in_flight;
                self.carry_out();
                self.has_key = false;
                if was_in_flight {
                    self.requests = SetRequestState::Unanswered;
                }
                return Some(Reply::Unknown);
            }
            Step::Release => {
                // Requests on one connection arrive in order.
                self.carry_out();
                let had_key = std::mem::take(&mut self.has_key);
                return Some(if had_key {
                    Reply::Granted
                } else {
                    Reply::Denied
                });
            }
            Step::ReleaseRefused => return Some(Reply::Refused),
        }
        None
    }

    fn carry_out(&mut self) {
        self.has_key |= std::mem::take(&mut self.in_flight);
    }

    fn break_up(&mut self, fate: Fate) {
        if !std::mem::take(&mut self.in_flight) {
            return;
        }
        self.requests = SetRequestState::Unanswered;
        match fate {
            Fate::Arrived => self.has_key = true,
            Fate::HeldUp => self.held_up = true,
            Fate::Lost => {}
        }
    }
}

/// Where a release stands.
#[derive(Clone, Copy)]
enum Standing {
    NotTried,
    Owed(OwedRelease),
    Settled,
}

impl Standing {
    fn handle_reply(self, requests: SetRequestState, reply: Reply) -> Self {
        let ttl = Ttl::new(Duration::from_secs(1)).expect("a second is within range");
        let owed = match self {
            Self::NotTried => OwedRelease::after_first(Timestamp::ZERO, ttl, requests, reply),
            Self::Owed(owed) => owed.after_next(requests, reply),
            Self::Settled => None,
        };
        owed.map_or(Self::Settled, Self::Owed)
    }
}

/// Plays the steps with a driver that sees the requests as `noted`. Returns whether a release was
/// settled although the node has the key, or may get it.
fn is_settled_too_early(
    steps: &[Step],
    noted: impl Fn(SetRequestState) -> SetRequestState,
) -> bool {
    let mut world = World::new();
    let mut standing = Standing::NotTried;
    for &step in steps {
        if let Some(reply) = world.apply(step) {
            standing = standing.handle_reply(noted(world.requests), reply);
        }
        let may_hold = world.has_key || world.held_up || world.in_flight;
        if matches!(standing, Standing::Settled) && may_hold {
            return true;
        }
    }
    false
}

#[test]
fn a_settled_release_leaves_no_key_behind() {
    check(4000, &steps(), |steps| {
        prop_assert!(!is_settled_too_early(&steps, |requests| requests));
        Ok(())
    });
}

/// The control: a driver that does not note unanswered requests leaves keys behind.
#[test]
fn a_driver_that_forgets_unanswered_requests_leaves_keys_behind() {
    let found = finds(4000, &steps(), |steps| {
        is_settled_too_early(&steps, |_| SetRequestState::Sent)
    });
    assert!(found, "the property notices nothing");
}

#[test]
fn an_answered_release_settles_unless_a_request_is_unanswered() {
    check(4000, &steps(), |steps| {
        let mut world = World::new();
        let mut standing = Standing::NotTried;
        for step in steps {
            let Some(reply) = world.apply(step) else {
                continue;
            };
            standing = standing.handle_reply(world.requests, reply);
            if matches!(step, Step::Release) && world.requests == SetRequestState::Sent {
                prop_assert!(matches!(standing, Standing::Settled));
            }
        }
        Ok(())
    });
}
