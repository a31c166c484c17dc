use std::{future::pending, pin::Pin, time::Duration};

use futures::future::BoxFuture;
use redlock_core::Timestamp;
use tokio::time::{Instant, Sleep, sleep};

use crate::{
    Clock, NodeError,
    node::{Server, Session},
};

/// How often a server is asked what it is while it is connected to. So long may votes be counted that
/// another server gave in its place, before they are withdrawn.
const INTERVAL: Duration = Duration::from_secs(1);

/// How often the marker of a server's age is looked after. It lasts for a day.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(3600);

/// Asks a server again and again what it is, beside what else is asked of it.
pub(super) struct Inspection {
    clock: Clock,
    state: State,
    /// When to look after the marker, if there is one.
    upkeep: Option<Instant>,
}

enum State {
    /// There is no server.
    Never,
    Pausing(Pin<Box<Sleep>>),
    Asking {
        asked_at: Timestamp,
        answer: BoxFuture<'static, Result<Server, NodeError>>,
    },
    Upkeep(BoxFuture<'static, Result<Option<Duration>, NodeError>>),
}

/// What a server has said, and when it was asked.
pub(super) struct Inspected {
    pub(super) asked_at: Timestamp,
    pub(super) server: Result<Server, NodeError>,
}

impl Inspection {
    pub(super) fn new(clock: Clock, server: &Server, has_marker: bool) -> Self {
        let state = match server {
            Server::None => State::Never,
            Server::Known(_) | Server::Withheld(_) => State::pausing(),
        };
        Self {
            clock,
            state,
            upkeep: has_marker.then(|| Instant::now() + UPKEEP_INTERVAL),
        }
    }

    /// Waits for the next answer. Pending for ever if there is no server.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost: the next call goes on where this one was.
    pub(super) async fn next(&mut self, session: &mut dyn Session) -> Inspected {
        loop {
            match &mut self.state {
                State::Never => pending().await,
                State::Pausing(pause) => {
                    pause.await;
                    self.state = match self.upkeep {
                        Some(due) if due <= Instant::now() => {
                            self.upkeep = Some(due + UPKEEP_INTERVAL);
                            State::Upkeep(session.history_age())
                        }
                        _ => State::Asking {
                            asked_at: self.clock.now(),
                            answer: session.inspect(),
                        },
                    };
                }
                State::Asking { asked_at, answer } => {
                    let inspected = Inspected {
                        asked_at: *asked_at,
                        server: answer.await,
                    };
                    self.state = State::pausing();
                    return inspected;
                }
                State::Upkeep(age) => {
                    // Nobody needs it now, and if the connection is broken, the next question shows it.
                    let _ = age.await;
                    self.state = State::pausing();
                }
            }
        }
    }
}

impl State {
    fn pausing() -> Self {
        Self::Pausing(Box::pin(sleep(INTERVAL)))
    }
}
