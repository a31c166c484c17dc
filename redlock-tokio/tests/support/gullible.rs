use std::{sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use redlock_core::{MemberId, MemberList, MemberReport, Owner, Tenure};
use redlock_tokio::{
    NodeError,
    deadpool_redis::redis::{Client, cmd},
    node::{Authority, AuthorityKind, NamedBy, Node, RedisNode, Reports, Session},
};

/// A node whose server an authority names.
pub(crate) struct Seat {
    pub(crate) address: String,
    pub(crate) authority: Arc<dyn Authority>,
}

/// The sentinels of a group, of which a client believes one alone, as many clients do: the rule of the majority is taken out.
struct Gullible {
    /// Opens the connections to the servers.
    group: Arc<dyn Authority>,
    sentinel: String,
    name: String,
}

/// Returns a group for a client that believes this sentinel alone.
pub(crate) fn gullible(group: &RedisNode, name: &str, sentinel: &str) -> Seat {
    let named_by = group.named_by().expect("it is a group");
    Seat {
        address: format!("{name}@{sentinel}"),
        authority: Arc::new(Gullible {
            group: named_by.authority,
            sentinel: format!("redis://{sentinel}"),
            name: name.to_owned(),
        }),
    }
}

impl Node for Seat {
    fn address(&self) -> &str {
        &self.address
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        async { panic!("a node with an authority is not connected to by itself") }.boxed()
    }

    fn named_by(&self) -> Option<NamedBy> {
        let authority = Arc::clone(&self.authority);
        Some(NamedBy::new(authority, 0, AuthorityKind::Sentinels))
    }
}

impl Authority for Gullible {
    fn watch(&self, reports: Reports) -> BoxFuture<'static, ()> {
        let client = Client::open(&*self.sentinel).unwrap();
        let name = self.name.clone();
        async move {
            loop {
                let asked_at = reports.now();
                if let Some(owner) = ask(&client, &name).await {
                    let owner = Owner::new(owner);
                    let report = MemberReport {
                        asked_at,
                        member: MemberId::new([b'g'; MemberId::LEN]),
                        members: MemberList::default(),
                        tenure: Some(Tenure { owner, epoch: 0 }),
                        age: Duration::ZERO,
                    };
                    reports.deliver(0, report);
                    reports.end_roll_call(asked_at);
                }
                tokio::time::sleep(reports.interval()).await;
            }
        }
        .boxed()
    }

    fn connect(
        &self,
        index: usize,
        tenure: &Tenure,
    ) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        self.group.connect(index, tenure)
    }
}

async fn ask(client: &Client, name: &str) -> Option<String> {
    let mut connection = client.get_multiplexed_async_connection().await.ok()?;
    let mut question = cmd("SENTINEL");
    question.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    let answer = question.query_async(&mut connection);
    let (host, port): (String, String) = answer.await.ok()?;
    Some(format!("{host}:{port}"))
}
