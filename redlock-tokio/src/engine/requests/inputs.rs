//! The inputs of a request, from the lanes and the timers.

use std::time::Duration;

use redlock_core::{Eligibility, ExpiryAnomaly, NodeId, RoundId, Withdrawal};

use super::{Cx, Engine, RequestId, request::Request};
use crate::{
    log,
    node::{Answer, Vote, reply_of},
    shown_time::ShownTime,
};

impl Engine {
    /// Takes a node's answer, or the reason why there is none, and what the node's votes are worth.
    pub(super) fn handle_answer(
        &mut self,
        cx: Cx<'_>,
        id: RequestId,
        (round, node): (RoundId, NodeId),
        answer: Answer,
        eligibility: Eligibility,
    ) {
        let Some(mut request) = self.take(id) else {
            return;
        };
        self.exclude_slots(&mut request);
        let seen = |it: &Request| {
            let lease = &it.lease;
            (lease.status(), lease.poll_timeout(), lease.is_in_line())
        };
        let before = seen(&request);
        let reply = reply_of(&answer, cx.now);
        if let Ok(Vote::Extended { remaining }) = answer {
            self.check_remaining(cx, &request, (round, node), remaining);
        }
        let watched = &mut request.watched;
        watched.note_answer(cx.now, round, node, answer, eligibility);
        let lease = &mut request.lease;
        lease.handle_reply(cx.now, round, node, reply, eligibility);
        // Most answers only add to a tally.
        if request.lease.has_outputs() || request.keys.slots().is_some() || seen(&request) != before
        {
            self.finish(cx, &mut request, before.0);
        } else {
            request.note_tries();
        }
        self.put_back(request);
    }

    /// Does what is due for a request. The timers have forgotten its deadline.
    pub(super) fn handle_timeout(&mut self, cx: Cx<'_>, id: RequestId) {
        self.update(cx, id, |engine, request| {
            request.due = None;
            request.lease.set_notified(cx.client.is_notified());
            request.lease.handle_timeout(cx.now);
            engine.handle_line_timeout(cx, request);
            engine.check_wait(cx, request);
        });
    }

    /// Takes the news that votes of a node count for nothing.
    pub(super) fn handle_withdrawal(&mut self, cx: Cx<'_>, node: NodeId, withdrawal: Withdrawal) {
        for id in self.all() {
            self.update(cx, id, |_, request| {
                request.lease.handle_withdrawal(cx.now, node, withdrawal);
            });
        }
    }

    /// Wakes the tasks of requests that fail fast and wait, to look whether a majority can still vote.
    pub(super) fn wake_to_look(&mut self) {
        let requests = self.requests.iter_mut();
        let waiting =
            requests.filter_map(|(_, it)| it.as_deref_mut().filter(|it| it.terms.fails_fast));
        self.out
            .wakers
            .extend(waiting.filter_map(Request::take_waiting_task));
    }

    /// Takes the news that a key is gone from a node.
    pub(super) fn handle_freed(&mut self, cx: Cx<'_>, id: RequestId, node: NodeId) {
        self.update(cx, id, |_, request| {
            if request.keys.has_several() || request.keys.slots().is_some() {
                // Other keys may still be there.
                request.lease.probe_again(node);
            } else {
                request.lease.handle_freed(cx.now, node, None);
            }
            // The key of readers changes whenever one of them comes, goes or is extended.
            if !request.lease.is_reader() {
                request.lease.handle_key_changed(cx.now, node);
            }
        });
    }

    /// Takes the news that all keys are gone from a node, and the lines too.
    pub(super) fn handle_flush(&mut self, cx: Cx<'_>, id: RequestId, node: NodeId) {
        self.handle_freed(cx, id, node);
        self.update(cx, id, |engine, request| {
            request.lease.handle_key_changed(cx.now, node);
            engine.rejoin_at(cx, request, node);
        });
    }

    /// Takes the news that there is a new connection to a node.
    pub(super) fn handle_connection(&mut self, cx: Cx<'_>, id: RequestId, node: NodeId) {
        self.update(cx, id, |engine, request| {
            request.lease.probe_again(node);
            engine.rejoin_at(cx, request, node);
        });
    }

    /// Warns if a node would have dropped the key too early or too late.
    ///
    /// The keys of one node go wrong together, so one warning speaks for all.
    fn check_remaining(
        &mut self,
        cx: Cx<'_>,
        request: &Request,
        (extension, node): (RoundId, NodeId),
        remaining: Duration,
    ) {
        let anomaly = request.lease.judge_remaining(cx.now, extension, remaining);
        let lane = &cx.client.lanes[node.index()];
        let withheld = match anomaly {
            Some(ExpiryAnomaly::TooShort { .. }) => lane.expires_too_early.due(cx.now),
            Some(ExpiryAnomaly::TooLong { .. }) => lane.expires_too_late.due(cx.now),
            _ => None,
        };
        let Some(withheld) = withheld else { return };
        let (line, node) = (request.log_line(cx), lane.address.clone());
        self.out.log(move || match anomaly {
            Some(ExpiryAnomaly::TooShort { needed }) => log::warn!(
                label = line.label, keys = line.keys(), token = %line.token,
                %node, remaining = %ShownTime(remaining), needed = %ShownTime(needed), withheld,
                "the key had less time left than the lock relies on: the node's clock has stepped, \
                 somebody has shortened the key's life, or the node has missed an extension"
            ),
            Some(ExpiryAnomaly::TooLong { longest }) => log::warn!(
                label = line.label, keys = line.keys(), token = %line.token,
                %node, remaining = %left(remaining), ttl = %ShownTime(longest.as_duration()), withheld,
                "the key had more time left than it was given: the node's clock has stepped back, or \
                 somebody has extended the key's life"
            ),
            _ => {}
        });
    }
}

/// Returns how long a key lives yet, for a line of the log.
fn left(remaining: Duration) -> String {
    match remaining {
        Duration::MAX => "none, as it has no end".into(),
        time => ShownTime(time).to_string(),
    }
}
