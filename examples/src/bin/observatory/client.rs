//! A client: a process of its own, as far as the nodes can tell. It locks its key, works and releases, again and again.

use std::{sync::Arc, time::Duration};

use redlock_axum::redlock_tokio::{BuildError, Clock, Durability, Redlock, events::Event};
use serde::{Deserialize, Serialize};
use tokio::{task::JoinSet, time::sleep};

use crate::{
    journal::{Journal, Kind, Request},
    name::Name,
    node::{Link, StagedNode},
    sections::Sections,
};

/// The ttl of all locks: short enough to see what happens when a client dies.
pub(crate) const TTL: Duration = Duration::from_secs(5);

/// How long a task waits for the lock before it asks again.
const WAIT: Duration = Duration::from_secs(20);

/// How long the tasks of a client may hand the lock over among them: long enough to see it.
const TURN: Duration = Duration::from_millis(2_500);

/// How long a task does something else between two locks, and after an error.
const REST: Duration = Duration::from_millis(400);

/// What a client does.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    /// The key that it locks.
    pub(crate) key: Name,
    /// How many of its tasks want the lock.
    pub(crate) tasks: u8,
    /// How long a task works under the lock.
    pub(crate) hold_ms: u64,
}

/// What the clients have in common.
pub(crate) struct Surroundings {
    pub(crate) nodes: Vec<StagedNode>,
    pub(crate) durability: Durability,
    pub(crate) journal: Journal,
    pub(crate) sections: Sections,
}

/// A client that may run.
pub(crate) struct Client {
    name: Name,
    plan: Plan,
    surroundings: Arc<Surroundings>,
    /// While it runs: its way to the nodes, and its tasks, which end when this is dropped.
    life: Option<(Link, JoinSet<()>)>,
}

impl Client {
    pub(crate) fn new(name: Name, plan: Plan, surroundings: Arc<Surroundings>) -> Self {
        let mut client = Self {
            name,
            plan,
            surroundings,
            life: None,
        };
        client.start();
        client
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(crate) fn is_running(&self) -> bool {
        self.life.is_some()
    }

    /// Starts the client, unless it runs.
    pub(crate) fn start(&mut self) {
        if self.is_running() {
            return;
        }
        let link = Link::default();
        let mut tasks = JoinSet::new();
        let run = run(
            self.name.clone(),
            self.plan.clone(),
            Arc::clone(&self.surroundings),
            link.clone(),
        );
        tasks.spawn(run);
        self.life = Some((link, tasks));
    }

    /// Ends the client as `kill -9` does: nothing that it still sends arrives.
    pub(crate) fn kill(&mut self) {
        let Some((link, _tasks)) = self.life.take() else {
            return;
        };
        link.cut();
        let request = Request {
            client: self.name.to_string(),
            key: self.plan.key.to_string(),
            request: 0,
        };
        let text = format!("{} was killed, and released nothing.", self.name);
        let journal = &self.surroundings.journal;
        journal.add(Kind::Died, Some(request), Some(text));
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Connects, and lets the tasks of the client work, for ever.
async fn run(name: Name, plan: Plan, surroundings: Arc<Surroundings>, link: Link) {
    let redlock = loop {
        match connect(&name, &surroundings, &link).await {
            Ok(redlock) => break redlock,
            Err(error) => {
                let text = format!("{name} cannot start: {error}.");
                surroundings.journal.add(Kind::Note, None, Some(text));
                sleep(REST).await;
            }
        }
    };
    let mut tasks = JoinSet::new();
    for _ in 0..plan.tasks {
        tasks.spawn(work(
            redlock.clone(),
            plan.clone(),
            surroundings.sections.clone(),
        ));
    }
    tasks.join_all().await;
}

async fn connect(
    name: &Name,
    surroundings: &Arc<Surroundings>,
    link: &Link,
) -> Result<Redlock, BuildError> {
    let nodes = surroundings.nodes.iter();
    let observer = {
        let (name, link) = (name.clone(), link.clone());
        let surroundings = Arc::clone(surroundings);
        move |event: &Event| match event {
            Event::Lock(event) if !link.is_cut() => surroundings.journal.observe(&name, event),
            _ => {}
        }
    };
    Redlock::builder()
        .custom_nodes(nodes.map(|node| node.behind(link.clone())))
        .clock(Clock::tokio())
        .durability(surroundings.durability)
        .client_name(name.as_str())
        .handover_for(TURN)
        .ttl(TTL)
        .wait(WAIT)
        .observer(observer)
        .build()
        .await
}

/// Locks the key, works under the lock until the work is done or the lock is lost, and releases it.
async fn work(redlock: Redlock, plan: Plan, sections: Sections) {
    loop {
        // The journal has the error.
        if let Ok(guard) = redlock.lock(plan.key.as_str()).await {
            let section = sections.enter(&plan.key);
            tokio::select! {
                () = sleep(Duration::from_millis(plan.hold_ms)) => {}
                _ = guard.lost() => {}
            }
            drop(section);
            drop(guard); // which releases the lock
        }
        sleep(REST).await;
    }
}
