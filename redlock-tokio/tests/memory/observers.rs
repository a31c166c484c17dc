//! The events that an observer gets. Over nodes in memory, by tokio's clock.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
    time::UNIX_EPOCH,
};

use futures::future::join_all;
use redlock_tokio::{
    LockOptions, LossReason, MemoryNode, OnceOutcome, Redlock, RedlockBuilder, Share,
    events::{Event, LockChange, LockEvent, NodeChange},
};
use tokio::time::{advance, sleep, timeout};

use crate::support::{
    MS, built,
    in_memory::{blocked, fleet, over, set_down, settle, three_nodes},
};

#[tokio::test(start_paused = true)]
async fn a_lock_that_goes_to_another_process_has_a_story_in_each() {
    let (recorder, redlock) = watched(&three_nodes(), |it| it).await;
    let ticket = redlock.lock("k").await.unwrap().into_ticket().unwrap();
    drop(redlock.adopt(ticket.clone()).await.unwrap());
    redlock.adopt(ticket).await.unwrap_err();
    settle().await;
    let expected = [
        "Requested Attempted Acquired(Granted) GivenAway(0ns)",
        "Requested Attempted Acquired(Granted) Released(0ns)",
        "Requested Attempted Failed",
    ];
    assert_eq!(recorder.stories(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_others_are_to_find_held_for_a_while_is_released_when_its_work_ends() {
    // The longer work ends when others need not find the lock any more.
    for work in [MS(0), MS(20_000)] {
        let (recorder, redlock) = watched(&three_nodes(), |it| it.wall_clock(|| MS(0))).await;
        let job = redlock.once("job", UNIX_EPOCH);
        let outcome = job.run(async |_| sleep(work).await).await.unwrap();
        assert_eq!(outcome, OnceOutcome::Ran(()));
        settle().await;
        let story = recorder.stories()[0].replace(" Extended", "");
        let expected = format!("Requested Attempted Acquired(Granted) Released({work:?})");
        assert_eq!(story, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn the_story_of_a_request_is_told_in_its_order() {
    let (recorder, redlock) = watched(&three_nodes(), |it| it.handover_for(MS(5000))).await;
    let first = redlock.lock("k").label("orders").await.unwrap();
    let waiting = blocked(redlock.lock("k")).await;
    assert!(redlock.try_lock("k").await.is_err());
    let given_up = redlock.lock("k").into_future();
    assert!(timeout(MS(100), given_up).await.is_err());
    sleep(MS(4000)).await;
    drop(first);
    let second = waiting.await.unwrap().unwrap();
    second.release().await;
    let expected = [
        "Requested Attempted Acquired(Granted) Extended HandedOver(4.1s)",
        "Requested Acquired(HandedOver) Released(0ns)",
        "Requested Failed",
        "Requested Cancelled(100ms)",
    ];
    assert_eq!(recorder.stories(), expected);

    let events = recorder.locks();
    let granted = &events[2];
    assert_eq!(name(&granted.change), "Acquired(Granted)");
    assert_eq!(granted.label(), Some("orders"));
    assert_eq!(granted.key().as_bytes(), b"k");
    assert_eq!(granted.share(), Share::Exclusive);
    let debug = format!("{granted:?}");
    assert!(!debug.contains("\"k\""), "{debug}");
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_told_to_each_holder_and_a_release_after_it_is_not() {
    let nodes = three_nodes();
    let (recorder, redlock) = watched(&nodes, |it| it).await;
    let catalogue = redlock.rw_lock("catalogue");
    let readers = [(); 3].map(|()| catalogue.read().into_future());
    let mut readers = join_all(readers).await;
    drop(readers.pop());
    nodes.iter().for_each(MemoryNode::clear);
    let first = readers[0].as_ref().unwrap();
    assert_eq!(first.lost().await, LossReason::KeysLost);
    drop(readers);
    let unrenewed = LockOptions::new().no_renewal();
    let expired = redlock.lock("k").options(unrenewed).await.unwrap();
    set_down(&nodes, true);
    expired.extend().await.unwrap_err();
    // The clock shows the end before a timer does.
    advance(MS(20_000)).await;
    drop(expired);
    settle().await;
    let expected = [
        "Requested Attempted Acquired(Granted) Lost(KeysLost)",
        "Requested Acquired(Joined) Lost(KeysLost)",
        "Requested Acquired(Joined) Released(0ns)",
        "Requested Attempted Acquired(Granted) ExtensionFailed Lost(Expired)",
    ];
    assert_eq!(recorder.stories(), expected);
}

#[tokio::test(start_paused = true)]
async fn nodes_are_told_of_when_they_change() {
    let nodes = three_nodes();
    let (recorder, redlock) = watched(&nodes, |it| it).await;
    let address = redlock.nodes()[0].address.clone();
    settle().await;
    assert_eq!(recorder.node(&address), ["Connected", "Voting"]);
    drop(redlock.lock("k").await.unwrap());
    settle().await;
    assert_eq!(recorder.node(&address), [""; 0], "all is well");

    let guard = redlock.lock("k").await.unwrap();
    nodes[0].set_down(true);
    drop(guard);
    sleep(MS(3000)).await;
    let away = recorder.node(&address);
    // The connection is lost, and then there is none to be made.
    assert_eq!(away, ["Reconnecting", "owed 1", "Reconnecting"]);
    nodes[0].set_down(false);
    sleep(MS(3000)).await;
    let back = recorder.node(&address);
    assert_eq!(back, ["Connected", "Voting", "owed 0"]);
    drop(redlock);
    settle().await;
    assert_eq!(recorder.node(&address), ["Ended"]);
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_or_locks_changes_nothing() {
    let (nodes, [other]) = fleet().await;
    let handle = Arc::new(Mutex::new(None::<Redlock>));
    let own = Arc::clone(&handle);
    let odd = move |event: &Event| {
        if let (Some(redlock), Event::Lock(_)) = (&*own.lock().unwrap(), event) {
            // It asks about the lock whose cell is just changing.
            let _ = (redlock.queue(), redlock.nodes());
        }
        panic!("this observer panics on purpose");
    };
    let (recorder, redlock) = watched(&nodes, |it| it.observer(odd)).await;
    *handle.lock().unwrap() = Some(redlock.clone());
    let guard = redlock.lock("k").await.unwrap();
    let waiting = blocked(redlock.lock("k")).await;
    guard.extend().await.unwrap();
    drop(guard);
    drop(waiting.await.unwrap().unwrap());
    let report = redlock.shutdown(None).await;
    assert_eq!((report.held, report.abandoned), (0, 0));
    assert!(other.try_lock("k").await.is_ok());
    // The one after it is told all the same.
    assert_eq!(recorder.stories().len(), 2);
    handle.lock().unwrap().take();
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_ends_one_hold_and_begins_another() {
    let (recorder, redlock) = watched(&three_nodes(), |it| it).await;
    let guard = redlock.rw_lock("k").write().await.unwrap();
    sleep(MS(200)).await;
    guard.downgrade().await.unwrap();
    guard.downgrade().await.unwrap(); // changes nothing
    sleep(MS(700)).await;
    guard.release().await;
    let expected =
        ["Requested Attempted Acquired(Granted) Downgraded(200ms) Extended Released(700ms)"];
    assert_eq!(recorder.stories(), expected);
    let events = recorder.locks();
    let shares = [3, 4].map(|index| events[index].share());
    assert_eq!(shares, [Share::Writer, Share::Reader]);
}

/// The events of one client.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<Event>>>);

impl Recorder {
    fn watch(&self, builder: RedlockBuilder) -> RedlockBuilder {
        let events = Arc::clone(&self.0);
        builder.observer(move |event: &Event| events.lock().unwrap().push(event.clone()))
    }

    fn locks(&self) -> Vec<LockEvent> {
        let events = self.0.lock().unwrap();
        let locks = events.iter().filter_map(|event| match event {
            Event::Lock(lock) => Some(lock.clone()),
            _ => None,
        });
        locks.collect()
    }

    /// Returns the changes of each request, in its order.
    fn stories(&self) -> Vec<String> {
        let mut stories = BTreeMap::<u64, Vec<_>>::new();
        for event in self.locks() {
            let story = stories.entry(event.request()).or_default();
            story.push(name(&event.change));
        }
        let stories = stories.into_values();
        stories.map(|it| it.join(" ")).collect()
    }

    /// Returns the changes of one node since the last call.
    fn node(&self, address: &str) -> Vec<String> {
        let events = std::mem::take(&mut *self.0.lock().unwrap());
        let changes = events.into_iter().filter_map(|event| match event {
            Event::Node(node) if &*node.address == address => Some(node.change),
            _ => None,
        });
        let changes = changes.filter_map(|change| match change {
            NodeChange::Answered { .. } => None,
            NodeChange::Owed { releases } => Some(format!("owed {releases}")),
            NodeChange::Entered(state) => Some(variant(&state)),
            change => Some(variant(&change)),
        });
        changes.collect()
    }
}

/// Returns the name of a change, with what it is told of its lock.
fn name(change: &LockChange) -> String {
    let detail = match change {
        LockChange::Acquired { acquisition, .. } => variant(acquisition),
        LockChange::Lost { reason, .. } => variant(reason),
        LockChange::Cancelled { waited: time, .. }
        | LockChange::Downgraded { held: time, .. }
        | LockChange::GivenAway { held: time, .. }
        | LockChange::HandedOver { held: time, .. }
        | LockChange::Released { held: time, .. } => format!("{time:?}"),
        _ => return variant(change),
    };
    format!("{}({detail})", variant(change))
}

/// Returns the name of a variant.
fn variant(of: &impl fmt::Debug) -> String {
    let shown = format!("{of:?}");
    let name = shown.split(|it: char| !it.is_alphanumeric());
    name.take(1).collect()
}

/// A client, and the events of it.
async fn watched(
    nodes: &[MemoryNode],
    configure: impl FnOnce(RedlockBuilder) -> RedlockBuilder,
) -> (Recorder, Redlock) {
    let recorder = Recorder::default();
    let redlock = built(recorder.watch(configure(over(nodes)))).await;
    (recorder, redlock)
}
