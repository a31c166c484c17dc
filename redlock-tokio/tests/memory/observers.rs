//! The events that an observer gets. Over nodes in memory, by tokio's clock.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::UNIX_EPOCH,
};

use fastrand::Rng;
use redlock_tokio::{
    Acquisition, LockOptions, LossReason, MemoryNode, NodeState, OnceOutcome, Redlock,
    RedlockBuilder, Share,
    events::{Event, LockChange, LockEvent, NodeChange},
};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::support::{
    MS,
    in_memory::{blocked, fleet, over, set_down, settle, three_nodes},
};

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

    /// Returns the changes of one node since the last call, in words.
    fn node(&self, address: &str) -> Vec<String> {
        let mut events = self.0.lock().unwrap();
        let events = events.extract_if(.., |event| match event {
            Event::Node(node) => &*node.address == address,
            _ => false,
        });
        let changes = events.filter_map(|event| match event {
            Event::Node(node) => match node.change {
                NodeChange::Connected => Some("connected".to_owned()),
                NodeChange::Entered(NodeState::Reconnecting(_)) => Some("reconnecting".to_owned()),
                NodeChange::Entered(state) => Some(state.to_string()),
                NodeChange::Answered { .. } => None,
                NodeChange::Owed { releases } => Some(format!("owed {releases}")),
                NodeChange::Abandoned { releases } => Some(format!("abandoned {releases}")),
                NodeChange::Ended => Some("ended".to_owned()),
                change => Some(format!("{change:?}")),
            },
            _ => None,
        });
        changes.collect()
    }
}

fn name(change: &LockChange) -> &'static str {
    match change {
        LockChange::Requested => "requested",
        LockChange::Attempted { .. } => "attempted",
        LockChange::Acquired { acquisition, .. } => match acquisition {
            Acquisition::Granted { .. } => "granted",
            Acquisition::HandedOver { .. } => "got it by a handover",
            Acquisition::Joined { .. } => "joined",
            _ => "acquired",
        },
        LockChange::Failed { .. } => "failed",
        LockChange::Cancelled { .. } => "cancelled",
        LockChange::Downgraded { .. } => "downgraded",
        LockChange::Extended { .. } => "extended",
        LockChange::ExtensionFailed { .. } => "extension failed",
        LockChange::Released { .. } => "released",
        LockChange::HandedOver { .. } => "handed over",
        LockChange::GivenAway { .. } => "given away",
        LockChange::Lost { .. } => "lost",
        _ => "?",
    }
}

/// Returns the changes of each request, in its order.
fn stories(events: &[LockEvent]) -> Vec<Vec<&'static str>> {
    let mut stories = BTreeMap::<u64, Vec<_>>::new();
    for event in events {
        let story = stories.entry(event.request()).or_default();
        story.push(name(&event.change));
    }
    stories.into_values().collect()
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_goes_to_another_process_has_a_story_in_each() {
    let (nodes, recorder) = (three_nodes(), Recorder::default());
    let builder = recorder.watch(over(&nodes));
    let redlock = builder.build().await.unwrap();
    let ticket = redlock.lock("k").await.unwrap().into_ticket().unwrap();
    drop(redlock.adopt(ticket.clone()).await.unwrap());
    redlock.adopt(ticket).await.unwrap_err();
    settle().await;
    let begin = ["requested", "attempted"];
    let expected = [
        &["granted", "given away"][..],
        &["granted", "released"],
        &["failed"],
    ];
    let expected = expected.map(|end| [&begin, end].concat());
    assert_eq!(stories(&recorder.locks()), expected);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_others_are_to_find_held_for_a_while_is_released_when_its_work_ends() {
    // The longer work ends when others need not find the lock any more.
    for work in [MS(0), MS(20_000)] {
        let (nodes, recorder) = (three_nodes(), Recorder::default());
        let builder = recorder.watch(over(&nodes)).wall_clock(|| MS(0));
        let redlock = builder.build().await.unwrap();
        let job = redlock.once("job", UNIX_EPOCH);
        let outcome = job.run(async |_| sleep(work).await).await.unwrap();
        assert_eq!(outcome, OnceOutcome::Ran(()));
        settle().await;
        let mut stories = stories(&recorder.locks());
        stories[0].retain(|change| *change != "extended");
        assert_eq!(stories, [["requested", "attempted", "granted", "released"]]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_story_of_a_request_is_told_in_its_order() {
    let (nodes, recorder) = (three_nodes(), Recorder::default());
    let builder = recorder.watch(over(&nodes)).handover_for(MS(5000));
    let redlock = builder.build().await.unwrap();
    let first = redlock.lock("k").label("orders").await.unwrap();
    let waiting = blocked(redlock.lock("k")).await;
    assert!(redlock.try_lock("k").await.is_err());
    let given_up = redlock.lock("k").into_future();
    assert!(timeout(MS(100), given_up).await.is_err());
    sleep(MS(4000)).await;
    let token = first.token();
    drop(first);
    let second = waiting.await.unwrap().unwrap();
    second.release().await;

    let events = recorder.locks();
    let expected = [
        "requested attempted granted extended handed over",
        "requested got it by a handover released",
        "requested failed",
        "requested cancelled",
    ];
    let told = stories(&events).into_iter().map(|it| it.join(" "));
    assert_eq!(told.collect::<Vec<_>>(), expected);
    let first = |name_of: &str| {
        let mut events = events.iter();
        let event = events.find(|event| name(&event.change) == name_of);
        event.unwrap()
    };
    let granted = first("granted");
    assert_eq!(granted.label(), Some("orders"));
    assert_eq!(granted.key().as_bytes(), b"k");
    assert_eq!(granted.share(), Share::Exclusive);
    let LockChange::HandedOver { token: told, held } = first("handed over").change else {
        unreachable!("by its name")
    };
    assert_eq!((told, held), (token, MS(4100)));
    let LockChange::Cancelled { waited } = first("cancelled").change else {
        unreachable!("by its name")
    };
    assert_eq!(waited, MS(100));
    let debug = format!("{granted:?}");
    assert!(debug.contains("orders"), "{debug}");
    assert!(!debug.contains("\"k\""), "{debug}");
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_told_to_each_holder_and_a_release_after_it_is_not() {
    let (nodes, recorder) = (three_nodes(), Recorder::default());
    let redlock = recorder.watch(over(&nodes)).build().await.unwrap();
    let catalogue = redlock.rw_lock("catalogue");
    let readers = [(); 3].map(|()| catalogue.read());
    let readers = futures::future::try_join_all(readers.map(IntoFuture::into_future)).await;
    let mut readers = readers.unwrap();
    drop(readers.pop());
    nodes.iter().for_each(MemoryNode::clear);
    assert_eq!(readers[0].lost().await, LossReason::KeysLost);
    drop(readers);
    // The clock shows the end of this one before a timer does.
    let unrenewed = LockOptions::new().no_renewal();
    let expired = redlock.lock("k").options(unrenewed).await.unwrap();
    tokio::time::advance(MS(20_000)).await;
    drop(expired);
    settle().await;

    let events = recorder.locks();
    let mut ends = stories(&events);
    let expired = ends.pop().unwrap();
    assert_eq!(expired, ["requested", "attempted", "granted", "lost"]);
    let mut ends: Vec<_> = ends.iter().map(|it| it[it.len() - 1]).collect();
    ends.sort_unstable();
    assert_eq!(ends, ["lost", "lost", "released"]);
    let reasons = events.iter().filter_map(|event| match event.change {
        LockChange::Lost { reason, .. } => Some(reason),
        _ => None,
    });
    let expected = [
        LossReason::KeysLost,
        LossReason::KeysLost,
        LossReason::Expired,
    ];
    assert_eq!(reasons.collect::<Vec<_>>(), expected);
}

#[tokio::test(start_paused = true)]
async fn nodes_are_told_of_when_they_change() {
    let (nodes, recorder) = (three_nodes(), Recorder::default());
    let redlock = recorder.watch(over(&nodes)).build().await.unwrap();
    let address = redlock.nodes()[0].address.clone();
    settle().await;
    assert_eq!(recorder.node(&address), ["connected", "voting"]);
    drop(redlock.lock("k").await.unwrap());
    settle().await;
    assert_eq!(recorder.node(&address), [""; 0], "all is well");

    let guard = redlock.lock("k").await.unwrap();
    nodes[0].set_down(true);
    drop(guard);
    sleep(MS(3000)).await;
    let away = recorder.node(&address);
    // The connection is lost, and then there is none to be made.
    assert_eq!(away, ["reconnecting", "owed 1", "reconnecting"]);
    nodes[0].set_down(false);
    sleep(MS(3000)).await;
    let back = recorder.node(&address);
    assert_eq!(back, ["connected", "voting", "owed 0"]);
    drop(redlock);
    settle().await;
    assert_eq!(recorder.node(&address), ["ended"]);
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_or_locks_changes_nothing() {
    let (nodes, [other]) = fleet().await;
    let handle = Arc::new(Mutex::new(None::<Redlock>));
    let seen = Recorder::default();
    let own = Arc::clone(&handle);
    let builder = over(&nodes).observer(move |event: &Event| {
        if let Some(redlock) = &*own.lock().unwrap()
            && let Event::Lock(_) = event
        {
            // It asks about the lock whose cell is just changing, and drops a request.
            assert_eq!(redlock.nodes().len(), 3);
            let _ = redlock.queue();
        }
        panic!("this observer panics on purpose");
    });
    let redlock = seen.watch(builder).build().await.unwrap();
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
    assert_eq!(stories(&seen.locks()).len(), 2);
    handle.lock().unwrap().take();
}

/// Returns what is wrong with the story of a request, if anything is.
fn fault(story: &[&str]) -> Option<String> {
    let mut stage = "new";
    for change in story {
        stage = match (stage, *change) {
            ("new", "requested") => "waiting",
            ("waiting", "attempted") => "waiting",
            ("waiting", "granted" | "got it by a handover" | "joined") => "held",
            ("waiting", "failed" | "cancelled") => "over",
            ("held", "extended" | "extension failed") => "held",
            ("held", "released" | "handed over" | "lost") => "over",
            // The requests of a lease that had its answer may still be under way.
            ("over", "attempted") => "over",
            _ => return Some(format!("{change} while {stage}: {story:?}")),
        };
    }
    (stage != "over").then(|| format!("it has no end: {story:?}"))
}

/// Many tasks want few keys, in every way, and give up, lose and release them.
async fn rush(seed: u64) -> Vec<LockEvent> {
    let (nodes, recorder) = (three_nodes(), Recorder::default());
    let builder = recorder.watch(over(&nodes)).random_seed(seed);
    let redlock = builder.ttl(MS(600)).build().await.unwrap();
    let mut rng = Rng::with_seed(seed);
    let mut tasks = JoinSet::new();
    for _ in 0..200 {
        let (redlock, mut rng) = (redlock.clone(), rng.fork());
        tasks.spawn(async move {
            sleep(MS(rng.u64(0..2000))).await;
            let key = ["a", "b"][rng.usize(0..2)];
            let lock = match rng.u8(0..6) {
                0 => redlock.rw_lock("rw").read(),
                1 => redlock.rw_lock("rw").write(),
                2 => redlock.semaphore("s", 2).acquire(),
                3 => redlock.lock_all(["a", "b"]),
                _ => redlock.lock(key),
            };
            let lock = lock.wait(MS(rng.u64(0..1500))).max_hold(MS(1000));
            let patience = MS(rng.u64(0..2000));
            let Ok(Ok(guard)) = timeout(patience, lock.into_future()).await else {
                return;
            };
            if rng.bool() {
                let _ = guard.extend().await;
            }
            sleep(MS(rng.u64(0..20) * rng.u64(0..20))).await;
            drop(guard);
        });
    }
    let failures = async {
        for _ in 0..6 {
            sleep(MS(300)).await;
            let down = rng.usize(0..3);
            nodes[down].set_down(true);
            nodes[(down + 1) % 3].set_down(rng.bool());
            sleep(MS(rng.u64(0..700))).await;
            set_down(&nodes, false);
            if rng.bool() {
                nodes.iter().for_each(MemoryNode::clear);
            }
        }
    };
    failures.await;
    tasks.join_all().await;
    redlock.shutdown(None).await;
    recorder.locks()
}

#[tokio::test(start_paused = true)]
async fn each_request_has_one_end_and_each_hold_has_one() {
    let mut all = Vec::new();
    for seed in 0..20 {
        let stories = stories(&rush(seed).await);
        assert_eq!(stories.len(), 200);
        for story in &stories {
            assert_eq!(fault(story), None, "seed {seed}");
        }
        all.extend(stories);
    }
    // All that can happen has happened.
    for change in [
        "granted",
        "got it by a handover",
        "joined",
        "failed",
        "cancelled",
        "extended",
        "extension failed",
        "released",
        "handed over",
        "lost",
    ] {
        let count = all.iter().filter(|story| story.contains(&change)).count();
        assert!(count > 10, "{change}: {count}");
    }
    // The check finds an event that is missing, and one that comes twice.
    let story = all.iter().find(|it| it.ends_with(&["granted", "released"]));
    let story = story.unwrap();
    for at in 0..story.len() {
        let mut changed = story.clone();
        if changed.remove(at) != "attempted" {
            assert!(fault(&changed).is_some(), "without {at}");
            changed.clone_from(story);
            changed.insert(at, story[at]);
            assert!(fault(&changed).is_some(), "twice {at}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_was_downgraded_counts_as_a_reader() {
    let recorder = Recorder::default();
    let builder = recorder.watch(over(&three_nodes()));
    let redlock = builder.build().await.unwrap();
    let guard = redlock.rw_lock("k").write().await.unwrap();
    sleep(MS(200)).await;
    guard.downgrade().await.unwrap();
    guard.downgrade().await.unwrap(); // changes nothing
    sleep(MS(700)).await;
    guard.release().await;
    let events = recorder.locks();
    let seen = events.iter().map(|it| (name(&it.change), it.share()));
    let expected = [
        ("requested", Share::Writer),
        ("attempted", Share::Writer),
        ("granted", Share::Writer),
        ("downgraded", Share::Writer),
        ("extended", Share::Reader),
        ("released", Share::Reader),
    ];
    assert_eq!(seen.collect::<Vec<_>>(), expected);
    let held = events.iter().filter_map(|it| match it.change {
        LockChange::Downgraded { held, .. } | LockChange::Released { held, .. } => Some(held),
        _ => None,
    });
    assert_eq!(held.collect::<Vec<_>>(), [MS(200), MS(700)]);
}
