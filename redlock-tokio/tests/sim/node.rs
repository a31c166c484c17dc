//! A process's ends of its connections: the driver's `Node` and `Session` over the simulated network.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use redlock_core::Tenure;
use redlock_tokio::{Answer, Command, FreedNotifier, Node, NodeError, Server, Session};
use tokio::sync::oneshot;

use crate::{
    host::Host,
    message::{ConnectionId, Reply, Request, Response},
    network::SharedNetwork,
    requests::ServiceId,
};

/// A server, as one process sees it.
pub(crate) struct SimulatedNode {
    address: String,
    server: usize,
    host: Arc<Host>,
    service: Option<ServiceId>,
    network: SharedNetwork,
}

struct SimulatedSession {
    server: Server,
    connection: OpenConnection,
}

/// Closes the connection when it is dropped, also while it is being opened.
struct OpenConnection {
    id: ConnectionId,
    network: SharedNetwork,
}

impl SimulatedNode {
    pub(crate) fn new(server: usize, host: &Arc<Host>, network: &SharedNetwork) -> Self {
        Self {
            address: format!("server-{server}"),
            server,
            host: Arc::clone(host),
            service: None,
            network: network.clone(),
        }
    }
}

impl SimulatedNode {
    /// Lets the network know for which `Redlock` the node is, and look for the keys that this leaves on the server.
    pub(crate) fn of(mut self, service: ServiceId) -> Self {
        self.service = Some(service);
        self
    }
}

impl Node for SimulatedNode {
    fn address(&self) -> &str {
        &self.address
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        async {
            let (id, described) = self
                .network
                .lock()
                .open(&self.host, self.service, self.server);
            let connection = OpenConnection {
                id,
                network: self.network.clone(),
            };
            let server = described_in(received(described).await)?;
            Ok(Box::new(SimulatedSession { server, connection }) as Box<dyn Session>)
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

impl Session for SimulatedSession {
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
        let reply = self.connection.ask(Request::Execute(batch.to_vec()));
        async {
            match reply.await? {
                Response::Executed(answers) => Ok(answers),
                other => Err(unexpected(&other)),
            }
        }
        .boxed()
    }

    fn server(&self) -> Server {
        self.server.clone()
    }

    fn inspect(&mut self) -> BoxFuture<'static, Result<Server, NodeError>> {
        let reply = self.connection.ask(Request::Describe);
        async { described_in(reply.await) }.boxed()
    }

    fn history_age(&mut self) -> BoxFuture<'static, Result<Option<Duration>, NodeError>> {
        let reply = self.connection.ask(Request::HistoryAge);
        async {
            match reply.await? {
                Response::Age(age) => Ok(Some(age)),
                other => Err(unexpected(&other)),
            }
        }
        .boxed()
    }

    fn tenure_age(
        &mut self,
        tenure: &Tenure,
    ) -> BoxFuture<'static, Result<Option<Duration>, NodeError>> {
        let epoch = tenure.epoch;
        let reply = self.connection.ask(Request::TenureAge { epoch });
        async {
            match reply.await? {
                Response::Age(age) => Ok(Some(age)),
                other => Err(unexpected(&other)),
            }
        }
        .boxed()
    }

    fn watch(&mut self, freed: FreedNotifier) {
        let mut invalidations = self
            .connection
            .network
            .lock()
            .invalidations(self.connection.id);
        // Word of keys that are gone must run in the process, and not in the world that sends it.
        tokio::spawn(async move {
            while let Some(key) = invalidations.recv().await {
                match key {
                    Some(key) => freed.key(key.as_bytes()),
                    None => freed.every_key(),
                }
            }
        });
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

fn described_in(reply: Reply) -> Result<Server, NodeError> {
    match reply? {
        Response::Described(server) => Ok(server),
        other => Err(unexpected(&other)),
    }
}

fn unexpected(response: &Response) -> NodeError {
    NodeError::Unexpected(format!("{response:?}").into())
}
