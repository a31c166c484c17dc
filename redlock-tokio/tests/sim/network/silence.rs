//! Connections that lose everything in one direction from some time on, and stay open.

use super::{Connection, Network, serving::LATE};
use crate::{
    clock::{MILLI, SECOND},
    message::{ConnectionId, INSPECTION_LIMIT, Loses, Request},
    seen::Seen,
    trace::Seconds,
    violation::{Kind, Violation},
};

/// A node has a timeout for each 128 keys in flight. There are less than 512 before the last batch, which has less than
/// 512 and one more command of up to 1024 keys.
const MOST_TIMEOUTS: u64 = (2 * 512 + 1024) / 128;

/// A request that its process waits for, and that gets no answer.
pub(super) struct Unanswered {
    sent: u64,
    /// How long the process may wait for it.
    limit: u64,
}

impl Network {
    /// Lets some connections lose everything in one direction from now on. `is_hit` gets a draw of its own for each.
    pub(crate) fn silence(&mut self, loses: Loses, mut is_hit: impl FnMut() -> bool) {
        for connection in self.connections.values_mut() {
            if connection.generation.is_some() && connection.loses.is_none() && is_hit() {
                connection.loses = Some(loses);
            }
        }
    }

    /// Returns whether a message in this direction is lost.
    pub(super) fn is_lost(&mut self, id: ConnectionId, what: Loses) -> bool {
        let connection = self.connections.get(&id);
        let is_lost = connection.is_some_and(|it| it.loses == Some(what));
        if is_lost {
            self.seen.note(match what {
                Loses::Requests => Seen::RequestLost,
                Loses::Answers => Seen::AnswerLost,
            });
        }
        is_lost
    }

    /// Notes that a request gets no answer, for which its process gives the connection up.
    pub(super) fn expect_end(&mut self, id: ConnectionId, number: u64, request: &Request) {
        let limit = match request {
            Request::Execute(_) => MOST_TIMEOUTS * LATE + SECOND,
            // Only its caller waits for it.
            Request::LookUp(_) | Request::Line(_) => return,
            Request::Describe | Request::HistoryAge | Request::TenureAge { .. } => {
                INSPECTION_LIMIT.as_nanos() as u64
            }
        };
        if let Some(connection) = self.connections.get_mut(&id)
            && let Some(question) = connection.waiting.get(&number)
        {
            let sent = question.sent;
            connection.unanswered.push(Unanswered { sent, limit });
        }
    }

    /// Looks whether a process has given a connection up in time.
    pub(super) fn look_for_silence(&mut self, id: ConnectionId, connection: &Connection) {
        if connection.unanswered.is_empty() || connection.host.stands_still() {
            return;
        }
        self.seen.note(Seen::SilentGivenUp);
        let now = connection.host.now();
        // The time begins anew with each answer: the server could not begin before.
        let since = connection.host.resumed_at().max(connection.last_delivery);
        let mut unanswered = connection.unanswered.iter();
        if let Some(Unanswered { sent, .. }) = unanswered.find(|it| it.due(since) < now) {
            let text = format!(
                "process {} gives {id:?} up at {} only, which does not answer a request of {}",
                connection.host.process,
                Seconds(now),
                Seconds(*sent)
            );
            self.violations.push(Violation::new(Kind::Service, text));
        }
    }
}

impl Unanswered {
    /// Returns by when the connection is given up, if the process does not stand still after this time.
    fn due(&self, since: u64) -> u64 {
        // What the slowest clock adds, and a step of the process.
        self.sent.max(since) + self.limit + self.limit / 50 + 20 * MILLI
    }
}
