//! What a node must hear from this process because of its places in lines: that the process is alive, and that it has left.
//!
//! While the process may have places at the node, it beats once a second. A process without a majority could not take the lock
//! that it would keep others waiting for. So it gives up all its places at its second beat without one, and takes none until
//! it has a majority again. A place that was given up while the node could not be reached is given up on the next connection,
//! and one whose request was lost with the next beat.

use std::{collections::BTreeMap, mem, sync::Arc};

use redlock_core::NodeId;
use tokio::time::Instant;

use super::handle::LineReply;
use crate::{
    Clock, Key, NodeError,
    engine::{line::MOST_ACTIVE, requests::Link},
    key::SlotKeys,
    node::{LineAction, LineAnswer, LineRequest},
    sync::Mutex,
};

/// What concerns all places of a process at a node.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LineNews {
    /// The life that the node counts for the process, if that has changed, or `None` if the process has no places.
    Life(Option<u64>),
    /// The connection is gone.
    Disconnected,
}

pub(super) struct Beats {
    node: NodeId,
    clock: Clock,
    /// To this process, as far as its places in lines are concerned.
    process: Link,
    /// A key for which the process may have a place, and whether it has asked for a place since the last beat.
    stands: Option<(Key, bool)>,
    due: Instant,
    answer: Arc<Mutex<Answer>>,
    /// The life that the leases know.
    life: Option<u64>,
    majority: Majority,
    owed: Arc<Mutex<Owed>>,
}

/// A key, whether the line is that of processes for several keys, and whether the place only keeps others waiting.
type LineName = (Key, bool, bool);

/// The requests to leave a line that were not answered.
#[derive(Default)]
struct Owed {
    requests: BTreeMap<LineName, OwedRequest>,
    last: u64,
}

struct OwedRequest {
    number: u64,
    request: LineRequest,
    /// There will be no answer.
    is_lost: bool,
}

#[derive(Debug)]
enum Answer {
    None,
    Awaited,
    Here(Result<LineAnswer, NodeError>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Majority {
    Reached,
    /// There was none at the last beat.
    Missed,
    /// There was none at the last two beats, so the process has left all lines.
    Lost,
}

impl Beats {
    pub(super) fn new(node: NodeId, clock: Clock, process: Link) -> Self {
        Self {
            node,
            clock,
            process,
            stands: None,
            due: Instant::now(),
            answer: Arc::new(Mutex::new(Answer::None)),
            life: None,
            majority: Majority::Reached,
            owed: Arc::default(),
        }
    }

    /// Begins with a new connection. Returns what is to be sent before anything else.
    pub(super) fn reconnect(&mut self) -> Vec<(LineRequest, LineReply)> {
        *self.answer.lock() = Answer::None;
        self.life = None;
        self.owed(|_| true)
    }

    /// Notes that the connection is gone.
    pub(super) fn disconnect(&self) {
        self.process.line_news(LineNews::Disconnected);
    }

    /// Returns when to beat, unless the last beat is not answered yet.
    pub(super) fn due(&self) -> Option<Instant> {
        let is_awaited = matches!(*self.answer.lock(), Answer::Awaited);
        (self.stands.is_some() && !is_awaited).then_some(self.due)
    }

    /// Takes a request that is about to be sent. Returns it with the receiver of the answer, or `None` if it
    /// must not be sent.
    pub(super) fn note(
        &mut self,
        request: LineRequest,
        reply: LineReply,
    ) -> Option<(LineRequest, LineReply)> {
        match request.action {
            LineAction::Join { .. } | LineAction::Keep { .. } => {
                if self.majority == Majority::Lost {
                    if !self.process.lines().has_majority(self.clock.now()) {
                        reply.send(Err(NodeError::Silent));
                        return None;
                    }
                    self.majority = Majority::Reached;
                }
                let line = line_of(&request);
                self.owed.lock().requests.remove(&line);
                if self.stands.is_none() {
                    self.due = Instant::now() + LineRequest::BEAT;
                }
                self.stands = Some((request.key.clone(), true));
                Some((request, reply))
            }
            LineAction::Leave { .. } | LineAction::LetGo { .. } => {
                let reply = self.leave(&request);
                Some((request, reply))
            }
            _ => Some((request, reply)),
        }
    }

    /// Notes that the process must leave a line. Returns the receiver of the answer, which may
    /// come after a later request to leave.
    pub(super) fn leave(&self, request: &LineRequest) -> LineReply {
        let line = line_of(request);
        let number = {
            let mut owed = self.owed.lock();
            owed.last += 1;
            let number = owed.last;
            let owes = OwedRequest {
                number,
                request: request.clone(),
                is_lost: false,
            };
            owed.requests.insert(line.clone(), owes);
            number
        };
        let owed = Arc::clone(&self.owed);
        LineReply::new(move |answer| {
            let mut owed = owed.lock();
            let requests = &mut owed.requests;
            let Some(last) = requests.get_mut(&line).filter(|it| it.number == number) else {
                return;
            };
            if answer.is_ok() || has_no_lines(&answer) {
                requests.remove(&line);
            } else {
                last.is_lost = true;
            }
        })
    }

    /// Takes the answer to a beat, and returns what is due.
    pub(super) fn next(&mut self) -> Vec<(LineRequest, LineReply)> {
        self.take_answer();
        let now = Instant::now();
        let Some((key, _)) = self.stands.clone() else {
            return Vec::new();
        };
        if self.due().is_none_or(|due| now < due) {
            return Vec::new();
        }
        self.due = now + LineRequest::BEAT;
        let mut due = self.owed(|it| it.is_lost);
        due.extend(self.leave_unwanted());
        let had_majority = self.majority;
        self.majority = match had_majority {
            _ if self.process.lines().has_majority(self.clock.now()) => Majority::Reached,
            Majority::Reached => Majority::Missed,
            Majority::Missed | Majority::Lost => Majority::Lost,
        };
        if had_majority != Majority::Lost {
            due.push(self.beat(key));
        }
        due
    }

    /// Returns some of the requests that are owed, to be sent again.
    fn owed(&self, which: impl Fn(&OwedRequest) -> bool) -> Vec<(LineRequest, LineReply)> {
        let owed = self.owed.lock();
        let requests = owed.requests.values().filter(|it| which(it));
        let requests = requests.map(|it| (it.request.clone(), LineReply::to_nobody()));
        requests.collect()
    }

    fn beat(&mut self, key: Key) -> (LineRequest, LineReply) {
        self.stands = Some((key.clone(), false));
        let answer = Arc::clone(&self.answer);
        *answer.lock() = Answer::Awaited;
        let request = LineRequest {
            key,
            of_several: false,
            action: LineAction::Beat {
                member: self.process.lines().member,
                leaves_all: self.majority == Majority::Lost,
            },
            client_name: None,
        };
        let take = move |it| *answer.lock() = Answer::Here(it);
        (request, LineReply::new(take))
    }

    fn take_answer(&mut self) {
        let answer = {
            let mut answer = self.answer.lock();
            match mem::replace(&mut *answer, Answer::None) {
                Answer::Here(answer) => answer,
                other => return *answer = other,
            }
        };
        let (life, has_more) = match answer {
            Ok(LineAnswer::Alive { life, has_more }) => (life, has_more),
            // Another beat tells whether that lasts.
            Ok(LineAnswer::Refused) if self.life.is_some() => return self.life = None,
            answer if has_no_lines(&answer) => (None, false),
            _ => return,
        };
        if life.is_none() {
            self.stands.take_if(|(_, has_joined)| !*has_joined);
        }
        if has_more {
            self.due = Instant::now();
        }
        if life.is_none() || life != self.life {
            self.life = life;
            self.process.line_news(LineNews::Life(life));
        }
    }

    /// Returns requests to leave the lines in which nobody waits, although the process was called there.
    fn leave_unwanted(&self) -> Vec<(LineRequest, LineReply)> {
        let called = self.process.lines().take_unwanted(self.node).into_iter();
        let unwanted = called.filter(|key| !self.process.is_wanted(key));
        let leave = |(key, of_several): (Key, bool)| {
            let slot = SlotKeys::parse(key.as_bytes()).map_or(0, |(_, slot)| slot.index());
            let request = LineRequest {
                key,
                of_several,
                action: LineAction::Leave {
                    member: self.process.lines().member,
                    active: (slot + 1).min(MOST_ACTIVE) as u32,
                    is_taken: false,
                },
                client_name: self.process.lines().client_name.shared(),
            };
            (request, LineReply::to_nobody())
        };
        let places = unwanted.flat_map(|key| [(key.clone(), false), (key, true)]);
        places.map(leave).collect()
    }
}

fn line_of(request: &LineRequest) -> LineName {
    let keeps = matches!(
        request.action,
        LineAction::Keep { .. } | LineAction::LetGo { .. }
    );
    (request.key.clone(), request.of_several, keeps)
}

/// Returns whether the node has no lines for this client.
fn has_no_lines(answer: &Result<LineAnswer, NodeError>) -> bool {
    matches!(
        answer,
        Ok(LineAnswer::Refused) | Err(NodeError::Refused { .. })
    )
}
