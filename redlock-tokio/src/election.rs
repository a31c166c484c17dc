use std::{fmt, mem, sync::Arc, time::Duration};

use futures::{Stream, stream};
use tokio::sync::{Notify, watch};

use crate::{Hold, KeyError, LockError, LockGuard, LockOptions, Redlock, Verdict};

/// How long to wait before the next request for the lock, if one fails at once.
const PAUSE: Duration = Duration::from_millis(200);

/// How long an observer waits at least before it asks again. More questions would load the nodes, and show no more.
const SHORTEST_PERIOD: Duration = Duration::from_millis(10);

impl Redlock {
    /// Returns the election of this name, in which this process can be a candidate for the leader of the fleet. Asks no node: see
    /// [`Election::run`].
    ///
    /// ```
    /// # use redlock_tokio::Redlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let done = redlock.elect("reports").run(async |leadership| leadership.is_valid()).await?;
    /// assert!(done);
    /// # Ok(())
    /// # }
    /// ```
    pub fn elect(&self, name: impl AsRef<[u8]>) -> Election {
        Election {
            redlock: self.clone(),
            name: name.as_ref().into(),
            options: LockOptions::new(),
            status: watch::Sender::new(Status::Campaigning),
        }
    }
}

/// An election, in which this process is a candidate. Made by [`Redlock::elect`](crate::Redlock::elect).
///
/// All candidates of the same name, in the whole fleet, elect one leader. The leader does its work until it resigns or its
/// leadership is lost. Then the others elect another one, and this process is a candidate again.
///
/// ```
/// # use redlock_tokio::Redlock;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let redlock = Redlock::embedded().await?;
/// # async fn send_reports() {}
/// # let stop = async {};
/// let election = redlock.elect("reports").ttl(Duration::from_secs(5));
/// let candidate = election.candidate(); // for the health page
/// let leading = tokio::spawn(async {
///     let campaign = election.run(async |_leadership| {
///         loop {
///             send_reports().await; // one process of the fleet is here
/// #           tokio::time::sleep(Duration::from_secs(1)).await;
///         }
///     });
///     // An outage is no error, but a shutdown is, and a name that cannot be locked.
///     if let Err(error) = campaign.await {
///         eprintln!("no candidate any more: {error}");
///     }
/// });
/// println!("leader: {}", candidate.is_leader());
/// stop.await;
/// leading.abort(); // the process resigns, and is no candidate any more
/// # Ok(())
/// # }
/// ```
///
/// # Leadership
///
/// The leader holds the lock with the name as its key. So all that is promised of a lock holds for the leadership: there is at
/// most one leader by its own validity clock, and [`fenced`](LockOptions::fenced) gives each leadership a token that is larger
/// than that of every earlier one. The lock is renewed for as long as the leader leads: [`max_hold`](LockOptions::max_hold)
/// does not bound it.
///
/// - A leader whose renewals fail ceases to lead at the end of the validity, whatever it hears from the nodes. The work is
///   dropped at its current `await`.
/// - A leader that is stopped (`SIGSTOP`, a paused machine) until after the end of the validity does not lead when it goes on.
///   The work is not polled any more, and [`Candidate::is_leader`] is false at once. Tasks that the work has spawned go on, and
///   so does the step between two awaits that was interrupted: check [`Hold::is_valid`] before a step that counts.
/// - If a leader dies, the others elect a new one within about one ttl, or within four seconds if that is longer and
///   other candidates die at the same time. If it resigns, within some milliseconds.
/// - A leader whose work hangs in an `await` keeps the leadership, because nothing tells such work from work that waits.
///   Put a [`timeout`](tokio::time::timeout) around each step.
#[must_use = "the process is a candidate only while `run` is awaited"]
pub struct Election {
    redlock: Redlock,
    name: Arc<[u8]>,
    options: LockOptions,
    status: watch::Sender<Status>,
}

impl Election {
    /// Sets options for the lock. Options that are not set keep what was set before. A candidate waits for as long as it takes
    /// and leads without a limit: [`wait`](LockOptions::wait), [`max_hold`](LockOptions::max_hold),
    /// [`fail_fast`](LockOptions::fail_fast) and handovers have no effect.
    pub fn options(mut self, options: LockOptions) -> Self {
        self.options = options.or(self.options);
        self
    }

    /// Sets the [time to live](LockOptions::ttl) of the lock: how long the others wait for a leader that died.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.options(LockOptions::new().ttl(ttl))
    }

    /// Returns a view of this candidate: whether it leads, and who does. Clones are cheap.
    #[must_use]
    pub fn candidate(&self) -> Candidate {
        Candidate {
            redlock: self.redlock.clone(),
            name: Arc::clone(&self.name),
            status: self.status.subscribe(),
        }
    }

    /// Streams who leads, without taking part: what holds now, and then each change. [`Verdict::Held`] names the leader by
    /// its [name](crate::Holder::client_name), and [`Verdict::Free`] says that nobody leads.
    ///
    /// Asks all nodes once in each time of `every`, for as long as the stream is polled, and misses a leader that led
    /// for a shorter time. A time below 10 ms, such as zero, counts as 10 ms. Each question costs what
    /// [`Redlock::inspect`] costs. Like an inspection, the answers are advice. The stream says nothing while nodes
    /// disagree, as they do for a moment when candidates compete. It ends with the next question after a
    /// [shutdown](Redlock::shutdown).
    ///
    /// ```
    /// # use futures::{StreamExt, pin_mut};
    /// # use redlock_tokio::{Redlock, Verdict};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let redlock = Redlock::embedded().await?;
    /// let leaders = redlock.elect("reports").observe(Duration::from_secs(1));
    /// pin_mut!(leaders);
    /// let now = leaders.next().await.expect("no shutdown")?;
    /// assert_eq!(now, Verdict::Free);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The stream ends after an error: the name is not allowed, so that nobody can lead.
    pub fn observe(
        &self,
        every: Duration,
    ) -> impl Stream<Item = Result<Verdict, KeyError>> + Send + use<> {
        let every = every.max(SHORTEST_PERIOD);
        let state = (self.candidate(), None::<Verdict>);
        stream::try_unfold(state, move |(candidate, mut known)| async move {
            loop {
                if known.is_some() {
                    candidate.redlock.client().clock.sleep(every).await;
                }
                let verdict = candidate.leader().await?;
                if candidate.redlock.client().is_shut_down() {
                    return Ok(None);
                }
                let is_news = known
                    .as_ref()
                    .is_none_or(|it| !is_same_leader(it, &verdict));
                if is_news && verdict != Verdict::Split {
                    return Ok(Some((verdict.clone(), (candidate, Some(verdict)))));
                }
                known = known.or(Some(Verdict::Split));
            }
        })
    }

    /// Campaigns, and does the work as the leader, again and again until the work returns. Then resigns and returns its result.
    ///
    /// The work is begun anew each time this process becomes the leader. It is dropped at its current `await` when the
    /// leadership is lost, or when the candidate [resigns](Candidate::resign). Its effects remain. A result that comes
    /// after the loss does not count, and the process campaigns again.
    ///
    /// In an outage the process campaigns on.
    ///
    /// In a spawned task, let the closure own what it uses: `async move |leadership| ..`. If it borrows, the compiler fails
    /// to see that the task is `Send`, and says that the implementation "is not general enough".
    ///
    /// A leader costs what a held lock costs. A candidate that waits costs what a request for a taken lock costs.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and resigns in the background. The process is no candidate any more.
    ///
    /// # Errors
    ///
    /// Fails with [`LockError::ShutDown`], [`LockError::InvalidKey`], [`LockError::InvalidOptions`],
    /// [`LockError::FenceExhausted`] or [`LockError::Random`], since to try again would not help.
    pub async fn run<T>(self, mut work: impl AsyncFnMut(&Hold) -> T) -> Result<T, LockError> {
        loop {
            let guard = self.win().await?;
            let term = Arc::new(Term {
                hold: guard.hold().view(),
                resignation: Notify::new(),
            });
            self.status.send_replace(Status::Leading(Arc::clone(&term)));
            let outcome = tokio::select! {
                biased;
                () = term.resignation.notified() => None,
                outcome = guard.protect(work(&guard)) => Some(outcome),
            };
            self.status.send_replace(Status::Campaigning);
            match outcome {
                Some(Ok(result)) => {
                    guard.release().await;
                    return Ok(result);
                }
                Some(Err(_lost)) => {} // it is in the log
                None => {
                    let ttl = guard.handle().own_ttl().as_duration();
                    guard.release().await;
                    self.redlock.client().clock.sleep(ttl).await;
                }
            }
        }
    }

    /// Waits until this process is the leader.
    async fn win(&self) -> Result<LockGuard, LockError> {
        let options = LockOptions::new()
            .wait(Duration::MAX)
            .max_hold(Duration::MAX)
            .fail_fast(false)
            .handover(false);
        loop {
            let lock = self.redlock.lock(&self.name);
            match lock.options(self.options).options(options).await {
                Ok(guard) => return Ok(guard),
                Err(
                    LockError::Contended(_)
                    | LockError::NoQuorum(_)
                    | LockError::Overloaded(_)
                    | LockError::TooSlow(_)
                    | LockError::NotPolled(_)
                    | LockError::Quarantined { .. }
                    | LockError::QueueFull { .. },
                ) => self.redlock.client().clock.sleep(PAUSE).await,
                Err(error) => return Err(error),
            }
        }
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("redlock", &self.redlock)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

#[derive(Clone)]
enum Status {
    Campaigning,
    Leading(Arc<Term>),
}

/// The time of this process as the leader, until it resigns or the leadership is lost.
struct Term {
    hold: Hold,
    resignation: Notify,
}

/// A view of a candidate of an [`Election`], for the code around it. Made by [`Election::candidate`].
#[derive(Clone)]
pub struct Candidate {
    redlock: Redlock,
    name: Arc<[u8]>,
    status: watch::Receiver<Status>,
}

impl Candidate {
    /// Returns whether this process is the leader now. Reads the clock, as [`Hold::is_valid`] does, and asks no node.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.leadership().is_some()
    }

    /// Returns the lock of the leadership, if this process is the leader now.
    #[must_use]
    pub fn leadership(&self) -> Option<Hold> {
        let status = self.status.borrow();
        match &*status {
            Status::Leading(term) if term.hold.is_valid() => Some(term.hold.view()),
            _ => None,
        }
    }

    /// Asks all nodes who is the leader: [`Verdict::Held`] names it, and [`Verdict::Free`] says that nobody is. Advice, as all
    /// that [`Redlock::inspect`] says: use [`is_leader`](Self::is_leader) to decide what this process does.
    ///
    /// The [name](crate::Holder::client_name) names the process. Costs what an inspection costs.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// Fails if the name is not allowed, so that nobody can lead. Nodes that do not answer are part of the verdict.
    pub async fn leader(&self) -> Result<Verdict, KeyError> {
        let inspection = self.redlock.inspect(&self.name).await?;
        Ok(inspection.verdict())
    }

    /// Returns what this process is in the election now.
    #[must_use]
    pub fn candidacy(&self) -> Candidacy {
        if self.is_leader() {
            Candidacy::Leading
        } else if self.status.has_changed().is_err() {
            Candidacy::Ended
        } else {
            Candidacy::Campaigning
        }
    }

    /// Waits until the process becomes the leader or ceases to be it, since this view was asked last. Returns what it is now.
    /// So a candidate that never led is never told that it ceased to lead. If the election has ended, returns at once.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the next call returns the change.
    pub async fn changed(&mut self) -> Candidacy {
        // An error says that the election has ended.
        let _ = self.status.changed().await;
        self.candidacy()
    }

    /// Ends the leadership, if this process is the leader: drops the work, releases the lock, and campaigns again after one
    /// ttl, so that another candidate can win. Changes nothing otherwise.
    ///
    /// To resign for good, drop the future of [`Election::run`], or return from the work.
    pub fn resign(&self) {
        if let Status::Leading(term) = &*self.status.borrow() {
            term.resignation.notify_one();
        }
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Candidate").field(&self.candidacy()).finish()
    }
}

fn is_same_leader(one: &Verdict, other: &Verdict) -> bool {
    match (one, other) {
        (Verdict::Held { by: one, .. }, Verdict::Held { by: other, .. }) => one == other,
        _ => mem::discriminant(one) == mem::discriminant(other),
    }
}

/// The part of a process in an [`Election`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Candidacy {
    /// It wants to lead, or has not begun to [run](Election::run).
    Campaigning,
    /// It is the leader.
    Leading,
    /// It is no candidate any more.
    Ended,
}
