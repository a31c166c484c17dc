//! The nodes and the clients of the embedded mode, and what a user does to them.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Result;
use redlock_axum::redlock_tokio::{Clock, Durability, Redlock};
use redlock_examples::lock;

use crate::{
    client::{Client, Plan, Surroundings, TTL},
    journal::{Journal, Kind},
    name::Name,
    node::{Act, Link, StagedNode},
    refusal::Refusal,
    sections::Sections,
};

/// How many nodes there are.
const NODES: usize = 5;

/// How many clients there can be.
const CLIENTS: usize = 12;

/// How many tasks a client can have, and how long it can hold a lock.
const TASKS: u8 = 8;
const HOLD_MS: u64 = 60_000;

/// The clients at the start: contention between processes, and a lock that is held long enough to be
/// extended and then handed over between two tasks.
const CAST: [(&str, &str, u8, u64); 4] = [
    ("ann", "order:42", 1, 1_500),
    ("ben", "order:42", 1, 1_500),
    ("cleo", "order:42", 1, 1_000),
    ("dan", "report", 2, 2_000),
];

/// The nodes and the clients.
pub(crate) struct Stage {
    pub(crate) surroundings: Arc<Surroundings>,
    /// A client that only looks at the states of the nodes.
    pub(crate) onlooker: Redlock,
    pub(crate) clients: std::sync::Mutex<BTreeMap<Name, Client>>,
}

impl Stage {
    /// Starts the nodes and the first clients.
    pub(crate) async fn start(trust_fresh_nodes: bool) -> Result<Self> {
        let nodes: Vec<_> = (0..NODES).map(|_| StagedNode::new()).collect();
        let durability = if trust_fresh_nodes {
            Durability::AssumedForTests
        } else {
            Durability::Volatile
        };
        let link = Link::default();
        let onlooker = Redlock::builder()
            .custom_nodes(nodes.iter().map(|node| node.behind(link.clone())))
            .clock(Clock::tokio())
            .durability(durability)
            .ttl(TTL)
            .build()
            .await?;
        let stage = Self {
            surroundings: Arc::new(Surroundings {
                nodes,
                durability,
                journal: Journal::new(),
                sections: Sections::default(),
            }),
            onlooker,
            clients: std::sync::Mutex::default(),
        };
        for (name, key, tasks, hold_ms) in CAST {
            let plan = Plan {
                key: key.parse()?,
                tasks,
                hold_ms,
            };
            stage.add(name.parse()?, plan)?;
        }
        Ok(stage)
    }

    /// Does something to a node.
    pub(crate) fn act(&self, index: usize, act: Act) -> Result<(), Refusal> {
        let nodes = &self.surroundings.nodes;
        let node = nodes.get(index).ok_or(Refusal::NoNode(nodes.len()))?;
        let done = match act {
            Act::Start => "runs as usual again",
            Act::Stop => "was stopped, and keeps its keys",
            Act::Hang => "hangs: it takes connections and answers nothing",
            Act::Slow => "is slow: it answers after 200 ms",
            Act::Restart => "restarts, and has lost its keys",
            Act::Flush => "was flushed, and has lost its keys",
        };
        let text = format!("{} {done}.", node.address());
        self.surroundings.journal.add(Kind::Act, None, Some(text));
        node.act(act);
        Ok(())
    }

    /// Adds a client, which starts at once.
    pub(crate) fn add(&self, name: Name, plan: Plan) -> Result<(), Refusal> {
        if !(1..=TASKS).contains(&plan.tasks) {
            return Err(Refusal::Tasks(TASKS));
        }
        if plan.hold_ms > HOLD_MS {
            return Err(Refusal::Hold(HOLD_MS / 1_000));
        }
        let mut clients = lock(&self.clients);
        if clients.contains_key(&name) {
            return Err(Refusal::Known(name));
        }
        if clients.len() == CLIENTS {
            return Err(Refusal::Crowd(CLIENTS));
        }
        let client = Client::new(name.clone(), plan, Arc::clone(&self.surroundings));
        clients.insert(name, client);
        Ok(())
    }

    /// Kills a client, or starts it again.
    pub(crate) fn run(&self, name: Name, runs: bool) -> Result<(), Refusal> {
        let mut clients = lock(&self.clients);
        let client = clients.get_mut(&name);
        let client = client.ok_or(Refusal::NoClient(name))?;
        if runs {
            client.start();
        } else {
            client.kill();
        }
        Ok(())
    }

    /// Kills a client, and forgets it.
    pub(crate) fn remove(&self, name: Name) -> Result<(), Refusal> {
        let client = lock(&self.clients).remove(&name);
        client.map(drop).ok_or(Refusal::NoClient(name))
    }
}
