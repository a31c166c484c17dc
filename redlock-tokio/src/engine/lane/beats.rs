//! What a node must hear from this process because of its places in lines: that the process is alive, and that it has left.
//!
//! While the process may have places at the node, it beats once a second. A process without a majority could not take the lock
//! that it would keep others waiting for. So it gives up all its places at its second beat without one, and takes none until
//! it has a majority again. A place that was given up while the node could not be reached is given up on the next connection,
//! and one whose request was lost with the next beat.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::handle::LineAsker;
use crate::{
    Clock, Key, NodeError,
    engine::{line::MOST_ACTIVE, requests::Link},
    key::SlotKeys,
    node::{LineAction, LineAnswer, LineRequest},
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
    clock: Clock,
    /// To this process, as far as its places in lines are concerned.
    process: Link,
    /// A key for which the process may have a place, and whether it has asked for a place since the last beat.
    stands: Option<(Key, bool)>,
    due: Instant,
    /// The last beat is not answered yet.
    is_awaited: bool,
    /// The life that the leases know.
    life: Option<u64>,
    majority: Majority,
    /// The requests to leave a line that were not answered.
    owed: BTreeMap<LineName, OwedRequest>,
    /// How many requests to leave there were.
    left: u64,
}

/// A key, whether the line is that of processes for several keys, and whether the place only keeps others waiting.
type LineName = (Key, bool, bool);

struct OwedRequest {
    number: u64,
    request: LineRequest,
    /// There will be no answer.
    is_lost: bool,
}

/// A request about a line, and who gets the answer.
pub(super) type Asked = (LineRequest, LineAsker);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Majority {
    Reached,
    /// There was none at the last beat.
    Missed,
    /// There was none at the last two beats, so the process has left all lines.
    Lost,
}

impl Beats {
    pub(super) fn new(clock: Clock, process: Link) -> Self {
        Self {
            clock,
            process,
            stands: None,
            due: Instant::now(),
            is_awaited: false,
            life: None,
            majority: Majority::Reached,
            owed: BTreeMap::new(),
            left: 0,
        }
    }

    /// Begins with a new connection. Returns what is to be sent before anything else.
    pub(super) fn reconnect(&mut self) -> Vec<Asked> {
        self.is_awaited = false;
        self.life = None;
        self.owed(|_| true)
    }

    /// Notes that the connection is gone.
    pub(super) fn disconnect(&self) {
        self.process.line_news(LineNews::Disconnected);
    }

    /// Returns when to beat, unless the last beat is not answered yet.
    pub(super) fn due(&self) -> Option<Instant> {
        (self.stands.is_some() && !self.is_awaited).then_some(self.due)
    }

    /// Takes a request that is about to be sent. Returns who gets the answer, or `None` if it must not be sent.
    pub(super) fn note(&mut self, request: &LineRequest, asker: LineAsker) -> Option<LineAsker> {
        match request.action {
            LineAction::Join { .. } | LineAction::Keep { .. } => {
                if self.majority == Majority::Lost {
                    if !self.process.has_majority(self.clock.now()) {
                        return None;
                    }
                    self.majority = Majority::Reached;
                }
                self.owed.remove(&line_of(request));
                if self.stands.is_none() {
                    self.due = Instant::now() + LineRequest::BEAT;
                }
                self.stands = Some((request.key.clone(), true));
                Some(asker)
            }
            LineAction::Leave { .. } | LineAction::LetGo { .. } => Some(self.leave(request, false)),
            _ => Some(asker),
        }
    }

    /// Notes that the process must leave a line. The answer may come after a later request to leave.
    fn leave(&mut self, request: &LineRequest, is_lost: bool) -> LineAsker {
        self.left += 1;
        let owes = OwedRequest {
            number: self.left,
            request: request.clone(),
            is_lost,
        };
        self.owed.insert(line_of(request), owes);
        LineAsker::Owed(self.left)
    }

    /// Takes a request that is not sent, since there is no connection.
    pub(super) fn note_refused(&mut self, request: &LineRequest) {
        if let LineAction::Leave { .. } | LineAction::LetGo { .. } = request.action {
            self.leave(request, true);
        }
    }

    /// Takes the answer to a request to leave a line, which is sent again if there is none.
    pub(super) fn handle_left(
        &mut self,
        request: &LineRequest,
        number: u64,
        answer: &Result<LineAnswer, NodeError>,
    ) {
        let line = line_of(request);
        let last = self.owed.get_mut(&line);
        let Some(last) = last.filter(|it| it.number == number) else {
            return;
        };
        last.is_lost = true;
        if answer.is_ok() || has_no_lines(answer) {
            self.owed.remove(&line);
        }
    }

    /// Returns what is due.
    pub(super) fn next(&mut self) -> Vec<Asked> {
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
            _ if self.process.has_majority(self.clock.now()) => Majority::Reached,
            Majority::Reached => Majority::Missed,
            Majority::Missed | Majority::Lost => Majority::Lost,
        };
        if had_majority != Majority::Lost {
            due.push(self.beat(key));
        }
        due
    }

    /// Returns some of the requests that are owed, to be sent again.
    fn owed(&self, which: impl Fn(&OwedRequest) -> bool) -> Vec<Asked> {
        let requests = self.owed.values().filter(|it| which(it));
        let requests = requests.map(|it| (it.request.clone(), LineAsker::Nobody));
        requests.collect()
    }

    fn beat(&mut self, key: Key) -> Asked {
        self.stands = Some((key.clone(), false));
        self.is_awaited = true;
        let request = LineRequest {
            key,
            of_several: false,
            action: LineAction::Beat {
                member: self.process.member,
                leaves_all: self.majority == Majority::Lost,
            },
            client_name: None,
        };
        (request, LineAsker::Beat)
    }

    /// Takes the answer to a beat.
    pub(super) fn handle_alive(&mut self, answer: &Result<LineAnswer, NodeError>) {
        self.is_awaited = false;
        let (life, has_more) = match answer {
            &Ok(LineAnswer::Alive { life, has_more }) => (life, has_more),
            // Another beat tells whether that lasts.
            Ok(LineAnswer::Refused) if self.life.is_some() => return self.life = None,
            answer if has_no_lines(answer) => (None, false),
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
    fn leave_unwanted(&self) -> Vec<Asked> {
        let unwanted = self.process.take_unwanted().into_iter();
        let leave = |(key, of_several): (Key, bool)| {
            let slot = SlotKeys::parse(key.as_bytes()).map_or(0, |(_, slot)| slot.index());
            let request = LineRequest {
                key,
                of_several,
                action: LineAction::Leave {
                    member: self.process.member,
                    active: (slot + 1).min(MOST_ACTIVE) as u32,
                    is_taken: false,
                },
                client_name: self.process.client_name.shared(),
            };
            (request, LineAsker::Nobody)
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
