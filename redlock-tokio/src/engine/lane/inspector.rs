use std::{future::pending, pin::Pin, time::Duration};

use futures::future::{BoxFuture, Join, OptionFuture, join};
use redlock_core::{Tenure, Timestamp};
use tokio::time::{Instant, Sleep, Timeout, sleep, timeout};

use super::vetting::Statement;
use crate::{
    Clock, NodeError,
    node::{Server, Session},
};

/// How often a server is asked what it is while it is connected. For this long votes may be counted
/// that another server gave in its place, before they are withdrawn.
const INTERVAL: Duration = Duration::from_secs(1);

/// How often the markers of a server's history and tenure are refreshed. They last for a day.
const MARKER_INTERVAL: Duration = Duration::from_secs(3600);

/// Asks a connected server again and again what it is, beside the other requests.
pub(super) struct Inspector {
    clock: Clock,
    state: State,
    /// Whether the server has a marker of its history.
    has_marker: bool,
    /// The tenure that the server has a marker of.
    tenure: Option<Tenure>,
    /// When to refresh the markers, if there are any.
    marker_due: Option<Instant>,
    /// How long that may take.
    marker_limit: Duration,
}

enum State {
    /// There is no server.
    Never,
    Pausing(Pin<Box<Sleep>>),
    Asking {
        asked_at: Timestamp,
        answer: BoxFuture<'static, Result<Server, NodeError>>,
    },
    RefreshingMarkers(Pin<Box<Timeout<Refresh>>>),
}

type Age = BoxFuture<'static, Result<Option<Duration>, NodeError>>;
type Refresh = Join<OptionFuture<Age>, OptionFuture<Age>>;

impl Inspector {
    /// Creates one that starts with a pause. `has_marker` says whether the server has a marker of its history, and
    /// `tenure` of which tenure it has one. `marker_limit` is how long the refresh of the markers may take.
    pub(super) fn new(
        clock: Clock,
        server: &Server,
        has_marker: bool,
        tenure: Option<Tenure>,
        marker_limit: Duration,
    ) -> Self {
        let state = match server {
            Server::None => State::Never,
            Server::Known(_) | Server::Withheld(_) => State::pausing(),
        };
        Self {
            clock,
            state,
            marker_due: (has_marker || tenure.is_some()).then(|| Instant::now() + MARKER_INTERVAL),
            has_marker,
            tenure,
            marker_limit,
        }
    }

    /// Waits for the next answer. Pending for ever if there is no server.
    ///
    /// # Errors
    ///
    /// An error means that the session is broken.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: the next call continues.
    pub(super) async fn next(&mut self, session: &mut dyn Session) -> Result<Statement, NodeError> {
        loop {
            match &mut self.state {
                State::Never => pending().await,
                State::Pausing(pause) => {
                    pause.await;
                    self.state = self.ask(session);
                }
                State::Asking { asked_at, answer } => {
                    let asked_at = *asked_at;
                    let server = answer.await;
                    self.state = State::pausing();
                    return server.map(|server| Statement {
                        asked_at,
                        server,
                        history_age: None,
                    });
                }
                State::RefreshingMarkers(ages) => {
                    // The ages are of no use now. If the connection is broken, the next question shows
                    // it. If a marker is not refreshed, the next refresh or connection does it.
                    let _ = ages.await;
                    self.state = State::pausing();
                }
            }
        }
    }

    fn ask(&mut self, session: &mut dyn Session) -> State {
        match self.marker_due {
            Some(due) if due <= Instant::now() => {
                self.marker_due = Some(due + MARKER_INTERVAL);
                let of_history = self.has_marker.then(|| session.history_age());
                let tenure = self.tenure.as_ref();
                let of_tenure = tenure.map(|tenure| session.tenure_age(tenure));
                let ages = join(of_history.into(), of_tenure.into());
                State::RefreshingMarkers(Box::pin(timeout(self.marker_limit, ages)))
            }
            _ => State::Asking {
                asked_at: self.clock.now(),
                answer: session.inspect(),
            },
        }
    }
}

impl State {
    fn pausing() -> Self {
        Self::Pausing(Box::pin(sleep(INTERVAL)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use redlock_core::{Owner, RunId};

    use crate::{
        ServerInfo,
        node::{Answer, Command},
    };

    /// Says what it is, and never answers how old its history is.
    #[derive(Default)]
    struct Forgetful {
        refreshes: u32,
        tenure_refreshes: u32,
    }

    impl Forgetful {
        fn known() -> Server {
            Server::Known(ServerInfo::new(RunId::new([b'a'; 40]), Duration::ZERO))
        }
    }

    impl Session for Forgetful {
        fn execute(&mut self, _: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
            pending().boxed()
        }

        fn server(&self) -> Server {
            Self::known()
        }

        fn history_age(&mut self) -> Age {
            self.refreshes += 1;
            pending().boxed()
        }

        fn tenure_age(&mut self, _: &Tenure) -> Age {
            self.tenure_refreshes += 1;
            pending().boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_marker_that_cannot_be_refreshed_does_not_end_the_inspections() {
        let limit = Duration::from_secs(5);
        let mut session = Forgetful::default();
        let tenure = Tenure {
            owner: Owner::new("a:1"),
            epoch: 1,
        };
        let (clock, server) = (Clock::tokio(), Forgetful::known());
        let mut inspector = Inspector::new(clock, &server, true, Some(tenure), limit);
        let start = Instant::now();
        while start.elapsed() < 3 * MARKER_INTERVAL {
            let next = inspector.next(&mut session);
            let next = timeout(limit + 2 * INTERVAL, next).await;
            assert!(next.expect("the inspections go on").is_ok());
        }
        assert!(session.refreshes >= 2, "{} refreshes", session.refreshes);
        assert_eq!(session.tenure_refreshes, session.refreshes);
    }
}
