//! Observers that are told by several threads.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use futures::FutureExt;
use shuttle::thread;

use super::{explore::explore, world::World};
use crate::events::Event;

/// Three tasks lock, and the last one may give up. Observers are told of all that happens, and of each lock in its order.
fn observe(gives_up: bool) {
    let stories = Arc::<Mutex<BTreeMap<u64, String>>>::default();
    let told = Arc::clone(&stories);
    let world = World::observed(Some(move |event: &Event| {
        // Others go on while it is told.
        thread::yield_now();
        if let Event::Lock(event) = event {
            let change = format!("{:?} ", event.change);
            let name = change.split_inclusive(' ').next().unwrap();
            *told.lock().unwrap().entry(event.request()).or_default() += name;
        }
    }));
    let visits = [0; 2].map(|_| world.visit(world.lock("k")));
    if gives_up {
        let _ = world.lock("other").into_future().now_or_never();
    } else {
        drop(world.hold(world.lock("other")));
    }
    assert!(visits.into_iter().all(|it| it.join().unwrap().is_ok()));
    world.end();
    for story in stories.lock().unwrap().values() {
        let attempts = "Attempted ".repeat(story.matches("Attempted ").count());
        let ends = ["Cancelled ", "Acquired Released ", "Acquired HandedOver "];
        let is_whole = |end| *story == format!("Requested {attempts}{end}");
        assert!(ends.into_iter().any(is_whole), "{story}");
    }
}

#[test]
fn observers_of_several_threads() {
    explore(&[], || observe(false));
}

#[test]
fn observers_of_a_task_that_gives_up() {
    explore(&[], || observe(true));
}
