//! Keeps open pages up to date. A change in this process is shown at once and announced to the other processes.
//! The announcements of other processes are shown as well. Every second all of it is read again, because
//! processes end and messages get lost.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use tokio::time::sleep;

use crate::{
    event::Event,
    office::BoxOffice,
    store::{SharedStore, Store},
};

/// The interval at which everything is shown and announced again, even without a change.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// How long changes are gathered before they are shown and announced. No page needs more than twenty updates a
/// second.
const GATHER: Duration = Duration::from_millis(50);

/// Starts the tasks, which run for as long as the process.
pub(crate) fn start(office: &Arc<BoxOffice>) {
    for event in office.halls() {
        tokio::spawn(show(Arc::clone(office), Arc::clone(event)));
    }
    if let Store::Shared(store) = &office.store {
        for event in office.halls() {
            tokio::spawn(announce(Arc::clone(store), Arc::clone(event)));
        }
        tokio::spawn(listen(Arc::clone(store), Arc::clone(office)));
    }
}

/// Sends the state of an event to its open pages.
async fn show(office: Arc<BoxOffice>, event: Arc<Event>) {
    loop {
        tokio::select! {
            () = event.outdated.notified() => {}
            () = sleep(HEARTBEAT) => {}
        }
        if event.snapshots.receiver_count() == 0 {
            continue;
        }
        let snapshot = office.look_or_remember(&event).await.json();
        event.snapshots.send_replace(snapshot);
        sleep(GATHER).await;
    }
}

/// Announces the changes and the people in line of this process to the other processes.
async fn announce(store: Arc<SharedStore>, event: Arc<Event>) {
    let mut untold = false;
    loop {
        tokio::select! {
            () = event.unannounced.notified() => untold = true,
            () = sleep(HEARTBEAT) => {}
        }
        let people = event.line.people();
        if untold || !people.is_empty() {
            let told = store.announce(event.name.as_str(), &people, untold).await;
            untold &= told.is_err(); // `listen` logs the reason
        }
        sleep(GATHER).await;
    }
}

/// Receives the announcements of other processes.
async fn listen(store: Arc<SharedStore>, office: Arc<BoxOffice>) {
    let mut is_down = false;
    loop {
        match store.changes().await {
            Ok(mut changes) => {
                if is_down {
                    tracing::warn!("the store is back");
                }
                while let Some(changed) = changes.next().await {
                    let mut halls = office.halls();
                    if let Some(event) = halls.find(|it| it.name.as_str() == changed) {
                        event.outdated.notify_one();
                    }
                }
                tracing::warn!("lost the connection to the store");
            }
            Err(error) if !is_down => tracing::warn!("the store is down: {error}"),
            Err(_) => {}
        }
        is_down = true;
        sleep(HEARTBEAT).await;
    }
}
