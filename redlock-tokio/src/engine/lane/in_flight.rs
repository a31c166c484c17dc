use std::{
    collections::VecDeque,
    future::poll_fn,
    mem,
    pin::Pin,
    sync::Arc,
    task::{self, Poll},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, MaybeDone, maybe_done},
};
use tokio::{
    task::coop::{Unconstrained, unconstrained},
    time::Instant,
};

use super::{
    answers::Owed,
    beats::Asked,
    handle::{Counters, LineAsker, ReplyTo, Whom, is_release},
};
use crate::{
    NodeError, foreign,
    node::{Answer, Command, LineAnswer, LineRequest, Session},
    sync::atomic::Ordering,
};

/// A batch with this many keys is full. (Its last command may have more keys than there was room for.) The limit bounds
/// how long others wait behind a batch. It is far beyond what gathers by itself between two round trips.
pub(super) const MAX_BATCH: usize = 512;

/// How many batches may be in flight at once. On a long way, a single batch in flight would make
/// requests wait for up to a round trip before they leave. More than a few gain nothing. (With 64
/// tasks and 5 ms to the nodes, an acquisition takes 1.17 round trips with 2 of them, 1.11 with 8,
/// 1.10 with 64.)
const MAX_BATCHES_IN_FLIGHT: usize = 8;

/// `node_timeout` is the time for this many keys. A node has more time for more keys in flight: what is slow because of
/// our own load is not silent. (Where sixteen busy processes shared two processors, servers needed up to 0.2 s for
/// commands of a thousand keys.)
const KEYS_PER_TIMEOUT: usize = MAX_BATCH / 4;

/// No further batch is sent while commands with this many keys are in flight. So a node that falls silent
/// is noticed soon. The time to answer does not run for commands that wait.
const MAX_KEYS_IN_FLIGHT: usize = MAX_BATCH;

/// How long a node may be silent before the lane closes the connection and opens another. A node
/// that only stopped for a moment is better served on the old connection.
pub(super) const SILENCE_LIMIT: Duration = Duration::from_secs(1);

/// The batches that were sent and not answered yet, oldest first. They are answered in order.
pub(super) struct InFlight {
    queue: VecDeque<SentBatch>,
    limit: Duration,
    counters: Arc<Counters>,
}

type Answers<T> = Result<Vec<T>, NodeError>;

type Awaited<T> = MaybeDone<Unconstrained<BoxFuture<'static, Answers<T>>>>;

struct SentBatch {
    batch: Batch,
    answers: Awaited<Answer>,
    of_lines: Awaited<LineAnswer>,
    sent_at: Instant,
    deadline: Instant,
    timed_out: bool,
}

/// A batch that was answered, or whose session broke.
pub(super) struct Completed {
    pub(super) batch: Batch,
    pub(super) answers: Answers<Answer>,
    pub(super) of_lines: Answers<LineAnswer>,
    /// The answers came after the requesters were told that there are none in time.
    pub(super) was_late: bool,
    pub(super) round_trip: Duration,
}

impl Completed {
    /// Returns the answer to the last request to set a key, if there was one.
    pub(super) fn last_set_answer(&self) -> Option<&Answer> {
        let answers = self.answers.as_ref().ok()?;
        let mut asked = self.batch.commands.iter().zip(answers);
        let is_set_request = |(command, _): &(&Command, _)| command.operation().sets_key();
        let (_, answer) = asked.rfind(is_set_request)?;
        Some(answer)
    }
}

impl InFlight {
    /// Creates an empty queue in which a batch is late after `limit`, or after a multiple of it if many keys
    /// are in flight.
    pub(super) fn new(limit: Duration, counters: Arc<Counters>) -> Self {
        Self {
            queue: VecDeque::new(),
            limit,
            counters,
        }
    }

    /// Sends a batch, unless it is empty.
    pub(super) fn send(&mut self, session: &mut dyn Session, batch: Batch) {
        if batch.is_empty() {
            return;
        }
        // The first poll hands the batch to the session. This must happen before the next batch is
        // sent, so the runtime's budget for this task must not postpone it. The lane polls again as
        // soon as it waits, so the waker of this poll does not matter. The code of the session may panic, and the batch
        // must be answered all the same.
        let answers = foreign::call(|| {
            let commands = (!batch.commands.is_empty()).then(|| session.execute(&batch.commands));
            let answers = begin(commands);
            let lines = (!batch.lines.is_empty()).then(|| session.line(&batch.lines));
            (answers, begin(lines))
        });
        let (answers, of_lines) = answers.unwrap_or_else(|| {
            (
                MaybeDone::Done(Err(panicked())),
                MaybeDone::Done(Ok(vec![])),
            )
        });
        let sent_at = Instant::now();
        let limit = time_for(self.limit, self.keys() + batch.keys);
        self.queue.push_back(SentBatch {
            batch,
            answers,
            of_lines,
            sent_at,
            deadline: sent_at + limit,
            timed_out: false,
        });
    }

    /// Waits for the answers to the oldest batch. Pending for ever if there is none.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: the batch stays the oldest until its answers are returned.
    pub(super) async fn next_completed(&mut self) -> Completed {
        poll_fn(|cx| {
            let Some(oldest) = self.queue.front_mut() else {
                return Poll::Pending;
            };
            task::ready!(oldest.answers.poll_unpin(cx));
            let mut answers = Pin::new(&mut oldest.answers);
            let mut of_lines = None;
            if let Some(Ok(_)) = answers.as_mut().output_mut() {
                if oldest.of_lines.poll_unpin(cx).is_ready() {
                    of_lines = Pin::new(&mut oldest.of_lines).take_output();
                } else if oldest.deadline <= Instant::now() {
                    // A node that answers commands is not silent, however long it takes for lines.
                    of_lines = Some(Err(NodeError::TimedOut(self.limit)));
                } else {
                    return Poll::Pending;
                }
            }
            match (answers.take_output(), self.queue.pop_front()) {
                (Some(answers), Some(sent)) => {
                    self.extend_deadlines();
                    let in_flight = &self.counters.in_flight;
                    in_flight.fetch_sub(sent.batch.releases, Ordering::Relaxed);
                    Poll::Ready(Completed {
                        batch: sent.batch,
                        answers,
                        of_lines: of_lines.unwrap_or_else(|| Ok(Vec::new())),
                        was_late: sent.timed_out,
                        round_trip: sent.sent_at.elapsed(),
                    })
                }
                // Unreachable: a future that is done has an output until that is taken, and the
                // batch leaves the queue with it.
                _ => Poll::Pending,
            }
        })
        .await
    }

    /// Marks the batches whose answers are late, and passes each of them to `late` once.
    pub(super) fn time_out(&mut self, mut late: impl FnMut(&mut Batch)) {
        let now = Instant::now();
        for sent in &mut self.queue {
            if !sent.timed_out && sent.deadline <= now {
                sent.timed_out = true;
                late(&mut sent.batch);
            }
        }
    }

    /// Returns the batches, which will not be answered any more.
    pub(super) fn into_batches(mut self) -> impl Iterator<Item = Batch> {
        let queue = mem::take(&mut self.queue);
        let releases = queue.iter().map(|sent| sent.batch.releases).sum();
        let in_flight = &self.counters.in_flight;
        in_flight.fetch_sub(releases, Ordering::Relaxed);
        queue.into_iter().map(|sent| sent.batch)
    }

    /// Returns when the next answers are late, or when the silence has become too long.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let oldest = self.queue.front()?;
        let end_of_silence = oldest.deadline + SILENCE_LIMIT;
        self.queue
            .iter()
            .find(|sent| !sent.timed_out)
            .map(|sent| sent.deadline.min(end_of_silence))
            .or(Some(end_of_silence))
    }

    /// Returns whether the oldest answers are late.
    pub(super) fn is_silent(&self) -> bool {
        self.queue.front().is_some_and(|oldest| oldest.timed_out)
    }

    pub(super) fn is_silent_for(&self, limit: Duration) -> bool {
        self.queue
            .front()
            .is_some_and(|oldest| oldest.timed_out && oldest.deadline + limit <= Instant::now())
    }

    pub(super) fn has_room(&self) -> bool {
        self.queue.len() < MAX_BATCHES_IN_FLIGHT && self.keys() < MAX_KEYS_IN_FLIGHT
    }

    /// Returns whether no answer is awaited. That there is none to a request about a line is known once it is late.
    pub(super) fn is_empty(&self) -> bool {
        let mut queue = self.queue.iter();
        queue.all(|sent| sent.timed_out && sent.batch.is_empty())
    }

    fn keys(&self) -> usize {
        self.queue.iter().map(|sent| sent.batch.keys).sum()
    }

    /// Gives each batch its whole time from now on: the node works, and could not begin with a batch
    /// before it answered the one in front.
    fn extend_deadlines(&mut self) {
        let now = Instant::now();
        let mut keys = 0;
        for sent in &mut self.queue {
            keys += sent.batch.keys;
            sent.deadline = now + time_for(self.limit, keys);
        }
    }
}

/// Commands that travel together, in order, and the purpose of each. Requests about lines follow them.
#[derive(Default)]
pub(super) struct Batch {
    commands: Vec<Command>,
    purposes: Vec<Purpose>,
    lines: Vec<LineRequest>,
    askers: Vec<LineAsker>,
    /// How many keys the commands have together.
    keys: usize,
    /// How many of the commands are releases.
    pub(super) releases: usize,
}

impl Batch {
    /// Creates an empty batch for so many commands, as far as they fit.
    pub(super) fn for_commands(commands: usize) -> Self {
        let capacity = commands.min(MAX_BATCH);
        Self {
            commands: Vec::with_capacity(capacity),
            purposes: Vec::with_capacity(capacity),
            ..Self::default()
        }
    }

    pub(super) fn push(&mut self, command: Command, purpose: Purpose) {
        self.keys += command.key_count();
        self.releases += usize::from(is_release(&command));
        self.commands.push(command);
        self.purposes.push(purpose);
    }

    pub(super) fn set_lines(&mut self, asked: Vec<Asked>) {
        (self.lines, self.askers) = asked.into_iter().unzip();
    }

    /// Returns the requests about lines, which nobody waits for any more.
    pub(super) fn take_lines(&mut self) -> impl Iterator<Item = Asked> + use<> {
        mem::take(&mut self.lines)
            .into_iter()
            .zip(mem::take(&mut self.askers))
    }

    pub(super) fn is_full(&self) -> bool {
        self.keys >= MAX_BATCH
    }

    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.lines.is_empty()
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = &ReplyTo> {
        self.purposes.iter().filter_map(|purpose| match purpose {
            Purpose::Request(reply_to) => Some(reply_to),
            Purpose::OwedRelease(_) => None,
        })
    }

    pub(super) fn into_commands(self) -> impl Iterator<Item = (Command, Purpose)> {
        self.commands.into_iter().zip(self.purposes)
    }
}

/// Why a command is sent.
pub(super) enum Purpose {
    /// A requester waits for the answer.
    Request(ReplyTo),
    /// The node is owed a release.
    OwedRelease(Owed),
}

impl Purpose {
    /// Returns for whom the command is sent.
    pub(super) fn whom(&self) -> &Whom {
        match self {
            Self::Request(reply_to) => &reply_to.whom,
            Self::OwedRelease(owed) => &owed.whom,
        }
    }
}

/// Hands a request to the session, if there is one.
fn begin<T>(request: Option<BoxFuture<'static, Answers<T>>>) -> Awaited<T> {
    let Some(request) = request else {
        return MaybeDone::Done(Ok(Vec::new()));
    };
    let mut answers = maybe_done(unconstrained(request));
    let _ = (&mut answers).now_or_never();
    answers
}

pub(super) fn panicked() -> NodeError {
    NodeError::Disconnected("the code of the session panicked".into())
}

fn time_for(limit: Duration, keys: usize) -> Duration {
    let times = keys.div_ceil(KEYS_PER_TIMEOUT).max(1);
    limit * u32::try_from(times).unwrap_or(u32::MAX)
}
