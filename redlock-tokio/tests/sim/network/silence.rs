//! Connections that lose everything in one direction from some time on, and stay open.

use super::{Network, serving::LATE};
use crate::{
    clock::SECOND,
    message::{ConnectionId, INSPECTION_LIMIT, Loses, Request, Unanswered},
    seen::Seen,
};

/// A node has a timeout for each 128 keys in flight. There are less than 512 before the last batch, which has less than
/// 512 and one more command of up to 1024 keys.
const MOST_TIMEOUTS: u64 = (2 * 512 + 1024) / 128;

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
        let Some(connection) = self.connections.get_mut(&id) else {
            return false;
        };
        if connection.loses != Some(what) {
            return false;
        }
        connection.has_lost = true;
        self.seen.note(match what {
            Loses::Requests => Seen::RequestLost,
            Loses::Answers => Seen::AnswerLost,
        });
        true
    }

    /// Plans to look whether a process has given up a connection that does not answer a request.
    pub(super) fn expect_end(&mut self, id: ConnectionId, number: u64, request: &Request) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        let Some(question) = connection.waiting.get(&number) else {
            return;
        };
        let limit = match request {
            Request::Execute(_) => MOST_TIMEOUTS * LATE + SECOND,
            // Only its caller waits for it.
            Request::LookUp(_) | Request::Line(_) => return,
            Request::Describe | Request::HistoryAge | Request::TenureAge { .. } => {
                INSPECTION_LIMIT.as_nanos() as u64
            }
        };
        let unanswered = Unanswered {
            connection: id,
            process: connection.host.process,
            sent: question.sent,
            limit,
        };
        let due = unanswered.due(0);
        self.queue
            .push(due, move |world| world.look_for_end(unanswered));
    }

    /// Returns why a connection should not be there any more, if it is there: its process has waited for too long.
    /// Otherwise plans to look again, if the process stood still or an earlier answer came meanwhile.
    pub(crate) fn look_for_end(&mut self, unanswered: Unanswered) -> Option<String> {
        let Unanswered {
            connection: id,
            process,
            sent,
            ..
        } = unanswered;
        let connection = self.connections.get(&id)?;
        // The time begins anew with each answer: the server could not begin before.
        let since = connection.host.resumed_at().max(connection.last_delivery);
        let due = unanswered.due(since);
        if due > self.at() {
            self.queue
                .push(due, move |world| world.look_for_end(unanswered));
            return None;
        }
        let text = format!(
            "process {process} has not given up {id:?}, which does not answer a request of {}",
            crate::trace::Seconds(sent)
        );
        Some(text)
    }
}
