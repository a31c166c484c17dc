//! Looks at the keys of real nodes, and notes who holds them. Changes nothing.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::join_all;
use redlock_axum::redlock_tokio::{Holder, Inspection, Redlock, Verdict};
use redlock_examples::lock;
use tokio::time::sleep;

use crate::{
    journal::{Journal, Kind, Request},
    name::Name,
    refusal::Refusal,
};

/// The time between two looks. A look costs each server about 75 us for each key.
const INTERVAL: Duration = Duration::from_millis(500);

/// How many keys are looked at.
const KEYS: usize = 12;

/// The keys of real nodes.
pub(crate) struct Onlooker {
    pub(crate) redlock: Redlock,
    pub(crate) journal: Journal,
    /// The keys, with what is known of each.
    pub(crate) keys: Mutex<BTreeMap<Name, Seen>>,
}

/// What is known of a key.
#[derive(Default)]
pub(crate) struct Seen {
    /// What the last look found.
    pub(crate) found: Option<Inspection>,
    /// The holder according to the last look that could tell.
    holder: Option<Holder>,
}

impl Onlooker {
    /// Looks at these keys for as long as the process runs.
    pub(crate) fn start(redlock: Redlock, keys: Vec<Name>) -> Arc<Self> {
        let keys = keys.into_iter().map(|key| (key, Seen::default()));
        let onlooker = Arc::new(Self {
            redlock,
            journal: Journal::new(),
            keys: Mutex::new(keys.collect()),
        });
        tokio::spawn({
            let onlooker = Arc::clone(&onlooker);
            async move {
                loop {
                    onlooker.look().await;
                    sleep(INTERVAL).await;
                }
            }
        });
        onlooker
    }

    /// Adds a key.
    pub(crate) fn add(&self, key: Name) -> Result<(), Refusal> {
        let mut keys = lock(&self.keys);
        if keys.len() >= KEYS && !keys.contains_key(&key) {
            return Err(Refusal::Keys(KEYS));
        }
        keys.entry(key).or_default();
        Ok(())
    }

    async fn look(&self) {
        let keys: Vec<_> = lock(&self.keys).keys().cloned().collect();
        let looks = keys.into_iter().map(async |key| {
            let found = self.redlock.inspect(key.as_str()).await;
            (key, found)
        });
        for (key, found) in join_all(looks).await {
            // A name is an allowed key, unless the prefix is too long for it.
            let Ok(found) = found else { continue };
            let now = match found.verdict() {
                // That too few nodes can tell is no news of the holder.
                Verdict::Unknown => None,
                Verdict::Held { by, .. } => Some(Some(by)),
                _ => Some(None),
            };
            let mut keys = lock(&self.keys);
            let seen = keys.entry(key.clone()).or_default();
            seen.found = Some(found);
            let Some(now) = now else { continue };
            let before = mem::replace(&mut seen.holder, now.clone());
            drop(keys);
            if before != now {
                self.note(&key, before, now);
            }
        }
    }

    /// Notes a new holder, and the end of the one before.
    fn note(&self, key: &Name, before: Option<Holder>, now: Option<Holder>) {
        let add = |kind, holder: Holder, text| {
            let request = Request {
                client: holder.to_string(),
                key: key.to_string(),
                request: 0,
            };
            self.journal.add(kind, Some(request), Some(text));
        };
        if let Some(holder) = before {
            let text = format!("{holder} does not hold {key} any more.");
            add(Kind::Released, holder, text);
        }
        if let Some(holder) = now {
            let text = format!("{holder} holds {key}.");
            add(Kind::Acquired, holder, text);
        }
    }
}
