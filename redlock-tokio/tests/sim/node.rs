//! A process's ends of its connections: the driver's `Node` and `Session` over the simulated network.

use std::{sync::Arc, time::Duration};

use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};
use redlock_core::Tenure;
use redlock_tokio::{
    Key, NodeError,
    node::{
        Answer, Command, FreedNotifier, KeyState, LineAnswer, LineRequest, Node, Server, Session,
    },
};
use tokio::{sync::oneshot, time::timeout};

use crate::{
    host::Host,
    message::{ConnectionId, INSPECTION_LIMIT, Reply, Request, Response, Word, refused},
    network::SharedNetwork,
    requests::ServiceId,
    rng::Rng,
    seen::Seen,
};

/// One `Redlock` of a process, as servers know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub(crate) service: ServiceId,
    /// Its sessions hear of keys that are gone. If not, it has to probe again and again.
    pub(crate) is_notified: bool,
    markers: Markers,
}

/// Whether a client may keep the markers by which servers tell the ages of histories and tenures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Markers {
    Kept,
    /// Its sessions know no markers.
    Unknown,
    /// It has no right to the keys.
    Forbidden,
}

/// A server, as one process sees it.
pub(crate) struct SimulatedNode {
    address: String,
    server: usize,
    host: Arc<Host>,
    client: Client,
    network: SharedNetwork,
}

struct SimulatedSession {
    server: Server,
    client: Client,
    connection: OpenConnection,
}

/// Closes the connection when it is dropped, even while it is being opened.
struct OpenConnection {
    id: ConnectionId,
    network: SharedNetwork,
}

impl Client {
    pub(crate) fn draw(service: ServiceId, rng: &mut Rng) -> Self {
        Self {
            service,
            is_notified: rng.chance(750_000),
            markers: rng.pick(&[
                Markers::Kept,
                Markers::Kept,
                Markers::Kept,
                Markers::Kept,
                Markers::Unknown,
                Markers::Forbidden,
            ]),
        }
    }
}

impl SimulatedNode {
    pub(crate) fn new(
        server: usize,
        client: Client,
        host: &Arc<Host>,
        network: &SharedNetwork,
    ) -> Self {
        Self {
            address: format!("server-{server}"),
            server,
            host: Arc::clone(host),
            client,
            network: network.clone(),
        }
    }
}

/// Takes an answer of this kind. Returns why there is none, if there is none.
macro_rules! answer {
    ($reply:expr, $kind:ident) => {
        match $reply? {
            Response::$kind(answer) => answer,
            other => return Err(NodeError::Unexpected(format!("{other:?}").into())),
        }
    };
}

impl Node for SimulatedNode {
    fn address(&self) -> &str {
        &self.address
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        async {
            let (id, described) =
                self.network
                    .lock()
                    .open(&self.host, self.client.service, self.server);
            let connection = OpenConnection {
                id,
                network: self.network.clone(),
            };
            let session = SimulatedSession {
                server: answer!(received(described).await, Described),
                client: self.client,
                connection,
            };
            Ok(Box::new(session) as Box<dyn Session>)
        }
        .boxed()
    }
}

impl OpenConnection {
    fn ask(&self, request: Request) -> impl Future<Output = Reply> + Send + use<> {
        let receiver = self.network.lock().send(self.id, request);
        received(receiver)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.network.lock().close(self.id);
    }
}

impl SimulatedSession {
    /// Asks for the age that a marker tells.
    fn age(&self, question: Request) -> BoxFuture<'static, Result<Option<Duration>, NodeError>> {
        match self.client.markers {
            Markers::Kept => {}
            Markers::Unknown => {
                self.note(Seen::MarkerUnknown);
                return ready(Ok(None)).boxed();
            }
            Markers::Forbidden => {
                self.note(Seen::MarkerForbidden);
                let error = refused("NOPERM", "no right to the keys of markers");
                return ready(Err(error)).boxed();
            }
        }
        let reply = self.connection.ask(question);
        async { Ok(Some(answer!(reply.await, Age))) }.boxed()
    }

    fn note(&self, what: Seen) {
        self.connection.network.lock().seen.note(what);
    }
}

impl Session for SimulatedSession {
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
        let reply = self.connection.ask(Request::Execute(batch.to_vec()));
        async { Ok(answer!(reply.await, Executed)) }.boxed()
    }

    fn server(&self) -> Server {
        self.server.clone()
    }

    fn inspect(&mut self) -> BoxFuture<'static, Result<Server, NodeError>> {
        let reply = self.connection.ask(Request::Describe);
        async {
            match timeout(INSPECTION_LIMIT, reply).await {
                Ok(reply) => Ok(answer!(reply, Described)),
                Err(_) => Err(NodeError::TimedOut(INSPECTION_LIMIT)),
            }
        }
        .boxed()
    }

    fn history_age(&mut self) -> BoxFuture<'static, Result<Option<Duration>, NodeError>> {
        self.age(Request::HistoryAge)
    }

    fn tenure_age(
        &mut self,
        tenure: &Tenure,
    ) -> BoxFuture<'static, Result<Option<Duration>, NodeError>> {
        let epoch = tenure.epoch;
        self.age(Request::TenureAge { epoch })
    }

    fn look_up(&mut self, key: &Key) -> BoxFuture<'static, Result<KeyState, NodeError>> {
        let reply = self.connection.ask(Request::LookUp(key.clone()));
        async { Ok(answer!(reply.await, Found)) }.boxed()
    }

    fn line(
        &mut self,
        requests: &[LineRequest],
    ) -> BoxFuture<'static, Result<Vec<LineAnswer>, NodeError>> {
        let reply = self.connection.ask(Request::Line(requests.to_vec()));
        async { Ok(answer!(reply.await, InLine)) }.boxed()
    }

    fn watch(&mut self, freed: FreedNotifier) -> bool {
        if !self.client.is_notified {
            self.note(Seen::PollingSession);
            return false;
        }
        let mut invalidations = self
            .connection
            .network
            .lock()
            .invalidations(self.connection.id);
        // Word of keys that are gone must run in the process, and not in the world that sends it.
        tokio::spawn(async move {
            while let Some(word) = invalidations.recv().await {
                match word {
                    Word::Freed(key) => freed.key(key.as_bytes()),
                    Word::AllFreed => freed.every_key(),
                    Word::Called(key, is_taken) => freed.called(key.as_bytes(), is_taken),
                }
            }
        });
        true
    }

    fn closed(&mut self) -> BoxFuture<'static, NodeError> {
        let closed = self.connection.network.lock().closed(self.connection.id);
        async {
            match closed.await {
                Ok(error) => error,
                // The process itself has closed the connection.
                Err(_) => std::future::pending().await,
            }
        }
        .boxed()
    }
}

async fn received(receiver: oneshot::Receiver<Reply>) -> Reply {
    match receiver.await {
        Ok(reply) => reply,
        Err(_) => std::future::pending().await,
    }
}
