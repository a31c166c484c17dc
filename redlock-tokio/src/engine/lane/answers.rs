use std::{collections::VecDeque, ops::ControlFlow, sync::Arc, time::Duration};

use redlock_core::{Eligibility, NodeId, OwedRelease, SetRequestState, Timestamp, Token};
use tokio::time::Instant;

use super::{
    beats::{Asked, Beats},
    handle::{Counters, LineAsker, ReplyTo, Whom, is_release},
    in_flight::{Batch, Completed, InFlight, Purpose},
};
use crate::{
    Clock, NodeError,
    engine::{
        requests::{Link, News},
        shrink,
    },
    foreign,
    node::{Answer, Command, LineAnswer, LineRequest, Session, Vote, reply_of},
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

/// How long after a failed delivery the next is tried, if nothing else shows that the node is back.
const RETRY_AFTER: Duration = Duration::from_millis(250);

/// There is room for the answers to so many commands at any time.
const FEW: usize = 16;

/// The most releases that are remembered. Beyond that, the oldest are dropped.
const MAX_OWED: usize = 100_000;

/// Passes answers to the requesters, and remembers the releases that the node is owed afterwards.
pub(super) struct Answers {
    node: NodeId,
    pub(super) clock: Clock,
    pub(super) owed_releases: OwedReleases,
    pub(super) beats: Beats,
    link: Link,
    /// Empty. It keeps its room.
    news: Vec<News>,
}

impl Answers {
    pub(super) fn new(
        node: NodeId,
        clock: Clock,
        counters: Arc<Counters>,
        beats: Beats,
        link: Link,
    ) -> Self {
        Self {
            node,
            clock,
            owed_releases: OwedReleases::new(counters),
            beats,
            link,
            news: Vec::new(),
        }
    }

    /// Passes a batch's answers to the requesters. `eligibility` is what the node's votes are worth
    /// now. Breaks if the session is broken, or if the node is no longer what it was.
    pub(super) fn deliver(
        &mut self,
        mut completed: Completed,
        eligibility: Eligibility,
    ) -> ControlFlow<NodeError> {
        let answers = match completed.answers {
            Ok(answers) => answers,
            Err(error) => {
                self.deliver_error(completed.batch, &error);
                return ControlFlow::Break(error);
            }
        };
        let lines = completed.batch.take_lines();
        if completed.was_late {
            // The node is back, and gets the releases that it missed.
            self.owed_releases.become_due();
        }
        let now = self.clock.now();
        let mut answers = answers.into_iter();
        let mut flow = ControlFlow::Continue(());
        for (command, purpose) in completed.batch.into_commands() {
            let answer = answers.next().unwrap_or_else(|| {
                Err(NodeError::Unexpected("fewer answers than commands".into()))
            });
            if let Err(error) = &answer
                && error.is_change_of_role()
            {
                // The lane must ask again what the node is.
                flow = ControlFlow::Break(error.clone());
            }
            self.take(now, command, purpose, answer);
        }
        let mut of_lines = completed.of_lines.map(Vec::into_iter);
        for (request, asker) in lines {
            let answer = of_lines.as_mut().map_err(|error| error.clone());
            let no_answer = || NodeError::Unexpected("no answer".into());
            let answer = answer.and_then(|it| it.next().ok_or_else(no_answer));
            self.take_of_line(&request, asker, answer);
        }
        self.deliver_news(now, eligibility);
        flow
    }

    /// Answers for a batch on a broken session.
    pub(super) fn deliver_error(&mut self, mut batch: Batch, error: &NodeError) {
        let now = self.clock.now();
        for (request, asker) in batch.take_lines() {
            self.take_of_line(&request, asker, Err(error.clone()));
        }
        for (command, purpose) in batch.into_commands() {
            if command.operation().sets_key()
                && let Purpose::Request(reply_to) = &purpose
            {
                let token = command.operation().token();
                reply_to.set_requests.note_unanswered(self.node, token);
            }
            self.take(now, command, purpose, Err(error.clone()));
        }
        // An error is no vote, whatever the node's votes are worth.
        self.deliver_news(now, Eligibility::ALWAYS);
    }

    /// Takes the answer to a command, and adds what the client must know.
    fn take(&mut self, now: Timestamp, command: Command, purpose: Purpose, answer: Answer) {
        if is_release(&command) {
            // Of several keys, some may be gone.
            if answer == Ok(Vote::Granted) || (command.has_several_keys() && answer.is_ok()) {
                self.news.push(News::Released {
                    command: command.clone(),
                    by: purpose.whom().clone(),
                    is_late: matches!(purpose, Purpose::OwedRelease(_)),
                });
            }
            self.owed_releases
                .settle(self.node, now, command, &purpose, &answer);
        }
        if let Purpose::Request(ReplyTo { whom, round, .. }) = purpose {
            match whom {
                Whom::Request(id, _) => self.news.push(News::Answer(id, round, answer)),
                Whom::Forced(sender) => {
                    if let Some(sender) = sender.lock().take() {
                        // An error means that nobody waits for it any more.
                        foreign::call(|| _ = sender.send(answer));
                    }
                }
            }
        }
    }

    /// Takes the answer of the node of a line, and adds what the client must know.
    fn take_of_line(
        &mut self,
        request: &LineRequest,
        asker: LineAsker,
        answer: Result<LineAnswer, NodeError>,
    ) {
        match asker {
            LineAsker::Request(id, question) => {
                self.news.push(News::OfLine(id, question, answer.ok()));
            }
            LineAsker::Beat => self.beats.handle_alive(&answer),
            LineAsker::Owed(number) => self.beats.handle_left(request, number, &answer),
            LineAsker::Nobody => {}
        }
    }

    /// Notes requests about lines that are about to be sent. Answers for those that must not be sent.
    pub(super) fn about_to_ask(&mut self, asked: Vec<Asked>) -> Vec<Asked> {
        let count = asked.len();
        let mut sent = Vec::with_capacity(count);
        for (request, asker) in asked {
            match self.beats.note(&request, asker) {
                Some(asker) => sent.push((request, asker)),
                None => self.refuse_line(&request, asker),
            }
        }
        if sent.len() < count {
            // No answer of the node may come by which they would learn of it.
            self.deliver_news(self.clock.now(), Eligibility::ALWAYS);
        }
        sent
    }

    /// Answers for a request about a line that is not sent.
    pub(super) fn refuse_line(&mut self, request: &LineRequest, asker: LineAsker) {
        self.beats.note_refused(request);
        self.take_of_line(request, asker, Err(NodeError::Silent));
    }

    fn deliver_news(&mut self, now: Timestamp, eligibility: Eligibility) {
        self.link.deliver(now, &mut self.news, eligibility);
        // Room for many is not kept for a few.
        self.news.shrink_to(FEW);
    }

    /// Answers for commands that were not sent.
    pub(super) fn refuse(
        &mut self,
        commands: impl IntoIterator<Item = (Command, ReplyTo)>,
        cause: &NodeError,
    ) {
        let now = self.clock.now();
        for (command, reply_to) in commands {
            let purpose = Purpose::Request(reply_to);
            self.take(now, command, purpose, Err(cause.clone()));
        }
        self.deliver_news(now, Eligibility::ALWAYS);
    }

    /// Answers for a batch whose answers are late. The batch stays in flight.
    pub(super) fn report_late(&mut self, batch: &mut Batch, limit: Duration) {
        for (request, asker) in batch.take_lines() {
            self.take_of_line(&request, asker, Err(NodeError::TimedOut(limit)));
        }
        let late = |to: &ReplyTo| match &to.whom {
            Whom::Request(id, _) => {
                let answer = Err(NodeError::TimedOut(limit));
                Some(News::Answer(*id, to.round, answer))
            }
            Whom::Forced(sender) => {
                if let Some(sender) = sender.lock().take() {
                    foreign::call(|| _ = sender.send(Err(NodeError::TimedOut(limit))));
                }
                None
            }
        };
        self.news.extend(batch.requests().filter_map(late));
        self.deliver_news(self.clock.now(), Eligibility::ALWAYS);
    }

    /// Forgets the owed releases whose keys have expired by themselves.
    pub(super) fn forget_expired(&mut self) {
        self.owed_releases.forget_expired(self.clock.now());
    }
}

/// Releases that could not be delivered yet, oldest first.
///
/// A node that was out of reach may hold keys of ours, because it carried out requests whose answers
/// were lost. Each such key would block the other clients until it expires. Only then is its release
/// forgotten.
pub(super) struct OwedReleases {
    queue: VecDeque<(Command, Owed)>,
    next_try: Option<Instant>,
    counters: Arc<Counters>,
}

/// A release that the node is owed, and for whom.
pub(super) struct Owed {
    /// Until when, and after which replies.
    release: OwedRelease,
    pub(super) whom: Whom,
    /// The requests to set the key that were sent.
    set_requests: Arc<SetRequests>,
}

impl OwedReleases {
    fn new(counters: Arc<Counters>) -> Self {
        Self {
            queue: VecDeque::new(),
            next_try: None,
            counters,
        }
    }

    /// Takes the answer to a release. Remembers the release if the node is still owed it.
    fn settle(
        &mut self,
        node: NodeId,
        now: Timestamp,
        command: Command,
        purpose: &Purpose,
        answer: &Answer,
    ) {
        let token = command.operation().token();
        let set_requests = match purpose {
            Purpose::OwedRelease(owed) => &owed.set_requests,
            Purpose::Request(reply_to) => &reply_to.set_requests,
        };
        let requests = set_requests.state(node, token);
        let reply = reply_of(answer, now);
        let release = match purpose {
            Purpose::OwedRelease(owed) => owed.release.after_next(requests, reply),
            Purpose::Request(to) => OwedRelease::after_first(now, to.ttl, requests, reply),
        };
        let Some(release) = release else { return };
        let owed = Owed {
            release,
            whom: purpose.whom().clone(),
            set_requests: Arc::clone(set_requests),
        };
        self.push(command, owed);
        let later = Instant::now() + RETRY_AFTER;
        match purpose {
            // The last attempt failed, so the other releases wait too: a node that refuses releases
            // must not be asked without a pause.
            Purpose::OwedRelease(_) => self.next_try = Some(later),
            Purpose::Request(_) => {
                self.next_try.get_or_insert(later);
            }
        }
    }

    /// Forgets releases whose keys have expired by themselves. (A release with a long ttl can stand
    /// before releases with short ttls. Those are then sent although their keys have expired.)
    fn forget_expired(&mut self, now: Timestamp) {
        while let Some((_, oldest)) = self.queue.front()
            && oldest.release.has_expired(now)
        {
            if !oldest.release.was_delivered() {
                self.note_abandoned();
            }
            self.queue.pop_front();
        }
        self.note_length();
    }

    /// Sends the releases that are due, unless the node is silent or busy.
    pub(super) fn send_due(&mut self, in_flight: &mut InFlight, session: &mut dyn Session) {
        if !in_flight.is_silent() && in_flight.has_room() {
            in_flight.send(session, self.take_due());
        }
    }

    /// Takes a batch of releases to deliver, if it is time to try.
    fn take_due(&mut self) -> Batch {
        let is_due = self.next_try.is_some_and(|at| at <= Instant::now());
        let mut batch = Batch::default();
        while is_due
            && !batch.is_full()
            && let Some((command, owed)) = self.queue.pop_front()
        {
            batch.push(command, Purpose::OwedRelease(owed));
        }
        self.counters.note_sent(&batch);
        self.note_length();
        batch
    }

    /// Makes all releases due at once: the node may be back.
    pub(super) fn become_due(&mut self) {
        self.next_try = (!self.queue.is_empty()).then(Instant::now);
    }

    /// Returns when to try next, if anything is owed.
    pub(super) fn next_try(&self) -> Option<Instant> {
        self.next_try
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    fn push(&mut self, command: Command, owed: Owed) {
        if self.queue.len() == MAX_OWED {
            self.queue.pop_front();
            self.note_abandoned();
        }
        self.queue.push_back((command, owed));
        self.note_length();
    }

    fn note_abandoned(&self) {
        self.counters.abandoned.fetch_add(1, Ordering::Relaxed);
    }

    fn note_length(&mut self) {
        if self.queue.is_empty() {
            self.next_try = None;
        }
        shrink::deque(&mut self.queue);
        self.counters
            .owed
            .store(self.queue.len(), Ordering::Relaxed);
    }
}

/// The requests to set the key of one lease that lanes sent.
#[derive(Debug, Default)]
pub(crate) struct SetRequests {
    /// The nodes to which such a request was sent: each may hold the key.
    sent: AtomicNodeSet,
    /// The nodes to which such a request was sent on a connection that broke before the answer
    /// came.
    unanswered: AtomicNodeSet,
    /// The latest attempt of which a request was unanswered. It can set no key of a later one.
    latest_unanswered: AtomicU32,
}

impl SetRequests {
    /// Returns those of a lease that has sent a request to this node, for all that is known.
    pub(crate) fn sent_to(node: NodeId) -> Self {
        let requests = Self::default();
        requests.note_sent(node);
        requests
    }

    pub(super) fn note_sent(&self, node: NodeId) {
        self.sent.insert(node);
    }

    /// Notes that a request was sent to the node on a connection that broke before the answer.
    fn note_unanswered(&self, node: NodeId, token: Token) {
        self.latest_unanswered
            .fetch_max(token.attempt(), Ordering::Relaxed);
        self.unanswered.insert(node);
    }

    /// Returns whether a request was sent to the node, which may hold the key then.
    pub(crate) fn was_sent(&self, node: NodeId) -> bool {
        self.sent.contains(node)
    }

    /// Returns what became of the requests to the node that can set the key with this token.
    fn state(&self, node: NodeId, token: Token) -> SetRequestState {
        let is_earlier = token.attempt() <= self.latest_unanswered.load(Ordering::Relaxed);
        if is_earlier && self.unanswered.contains(node) {
            SetRequestState::Unanswered
        } else if self.sent.contains(node) {
            SetRequestState::Sent
        } else {
            SetRequestState::NeverSent
        }
    }
}

/// A set to which nodes are only ever added.
#[derive(Debug, Default)]
struct AtomicNodeSet(AtomicU64);

impl AtomicNodeSet {
    fn insert(&self, node: NodeId) {
        self.0.fetch_or(1 << node.index(), Ordering::Relaxed);
    }

    fn contains(&self, node: NodeId) -> bool {
        self.0.load(Ordering::Relaxed) & (1 << node.index()) != 0
    }
}

#[cfg(test)]
mod tests {
    use redlock_core::Nonce;

    use super::*;

    #[test]
    fn an_unanswered_request_counts_for_the_keys_that_it_can_set() {
        let requests = SetRequests::default();
        let [node, other] = [0, 1].map(|it| NodeId::new(it).expect("below 64"));
        let token = |attempt| Nonce::new(7).token(attempt);
        requests.note_sent(node);
        requests.note_sent(other);
        requests.note_unanswered(node, token(3));
        assert_eq!(requests.state(node, token(3)), SetRequestState::Unanswered);
        assert_eq!(requests.state(node, token(2)), SetRequestState::Unanswered);
        assert_eq!(requests.state(node, token(4)), SetRequestState::Sent);
        assert_eq!(requests.state(other, token(3)), SetRequestState::Sent);
    }
}
