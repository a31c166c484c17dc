use std::{
    collections::VecDeque,
    sync::Mutex,
    time::{Duration, Instant},
};

use redlock_axum::redlock_tokio::{
    Acquisition,
    events::{LockChange, LockEvent},
};
use redlock_examples::{lock, millis};
use serde::Serialize;

use crate::name::Name;

/// What happened, for the time line and the log of the page.
pub(crate) struct Journal {
    start: Instant,
    entries: Mutex<VecDeque<Entry>>,
}

/// How many entries are kept: more than a minute of twelve busy clients.
const LIMIT: usize = 4_000;

/// Something that happened.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Entry {
    number: u64,
    at_ms: u64,
    kind: Kind,
    /// A sentence, unless the time line alone shows this.
    text: Option<String>,
    #[serde(flatten)]
    request: Option<Request>,
}

/// A request for a lock.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Request {
    pub(crate) client: String,
    pub(crate) key: String,
    /// Its number, for one client.
    pub(crate) request: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    Requested,
    Attempted,
    Acquired,
    TakenOver,
    Failed,
    Extended,
    ExtensionFailed,
    Released,
    HandedOver,
    Lost,
    /// The client has ended, and gives nothing back.
    Died,
    /// A user has done something.
    Act,
    /// Nodes have changed.
    Note,
}

impl Journal {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            entries: Mutex::default(),
        }
    }

    /// Returns the time since the start of the program.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Adds an entry.
    pub(crate) fn add(&self, kind: Kind, request: Option<Request>, text: Option<String>) {
        let mut entries = lock(&self.entries);
        if entries.len() == LIMIT {
            entries.pop_front();
        }
        let number = entries.back().map_or(0, |it| it.number + 1);
        entries.push_back(Entry {
            number,
            at_ms: millis(self.now()),
            kind,
            text,
            request,
        });
    }

    /// Adds what a client's observer is told of its locks.
    pub(crate) fn observe(&self, client: &Name, event: &LockEvent) {
        let Some((kind, text)) = describe(client, event) else {
            return;
        };
        let request = Request {
            client: client.to_string(),
            key: key(event),
            request: event.request(),
        };
        self.add(kind, Some(request), text);
    }

    /// Returns the entries from this number on, and the number after them.
    pub(crate) fn since(&self, number: u64) -> (Vec<Entry>, u64) {
        let entries = lock(&self.entries);
        let new = entries.partition_point(|it| it.number < number);
        let next = entries.back().map_or(number, |it| it.number + 1);
        (entries.range(new..).cloned().collect(), next)
    }
}

fn key(event: &LockEvent) -> String {
    String::from_utf8_lossy(event.key().as_bytes()).into_owned()
}

/// Returns how the page shows a change, and what its log says about it.
fn describe(client: &Name, event: &LockEvent) -> Option<(Kind, Option<String>)> {
    let key = key(event);
    Some(match &event.change {
        LockChange::Requested => (Kind::Requested, None),
        LockChange::Attempted { .. } => (Kind::Attempted, None),
        LockChange::Acquired { acquisition, .. } => match acquisition {
            Acquisition::Granted {
                granted_by,
                nodes_total,
                waited,
                ..
            } => {
                let votes = granted_by.len();
                let text = format!(
                    "{client} got {key}, as soon as {votes} of {nodes_total} nodes had voted for it, after {waited:.1?}."
                );
                (Kind::Acquired, Some(text))
            }
            _ => {
                let text = format!("{client}'s next task took {key} over. No node was asked.");
                (Kind::TakenOver, Some(text))
            }
        },
        LockChange::Failed { error, waited } => {
            let text = format!("{client} did not get {key} within {waited:.1?}: {error}.");
            (Kind::Failed, Some(text))
        }
        LockChange::Cancelled { .. } => (Kind::Failed, None),
        LockChange::Extended { .. } => (Kind::Extended, None),
        LockChange::ExtensionFailed { nodes, .. } => {
            let text = format!("{client} could not extend {key} yet: {nodes}.");
            (Kind::ExtensionFailed, Some(text))
        }
        LockChange::Released { held, .. } => {
            let text = format!("{client} released {key} after {held:.1?}.");
            (Kind::Released, Some(text))
        }
        LockChange::HandedOver { .. } => (Kind::HandedOver, None),
        LockChange::Lost { reason, .. } => {
            let text = format!("{client} lost {key}, and stopped its work: {reason}.");
            (Kind::Lost, Some(text))
        }
        _ => return None,
    })
}
