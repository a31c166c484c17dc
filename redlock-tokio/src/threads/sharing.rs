//! Readers of one process that share a lease, while some leave, give up or wait behind a writer.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use shuttle::{future, thread};

use super::{
    explore::{First, explore, sometimes},
    world::{World, patient},
};
use crate::{Acquisition, Lock, LockError, LockGuard, RedlockRwLock};

/// The weight of a writer in the count of holders. A reader weighs one.
const WRITER: usize = 1000;

/// Checks that a writer is in alone.
#[derive(Clone, Default)]
struct Inside(Arc<AtomicUsize>);

impl Inside {
    fn visit(&self, outcome: Result<LockGuard, LockError>, weight: usize) {
        let guard = outcome.expect("the others are gone in the end");
        assert!(guard.is_valid());
        let joined = matches!(guard.acquisition(), Acquisition::Joined { .. });
        sometimes("a reader joins", joined);
        sometimes("a reader asks", !joined && weight == 1);
        let before = self.0.fetch_add(weight, SeqCst);
        let is_alone = before == 0 || (before < WRITER && weight == 1);
        assert!(is_alone, "{before} and {weight} are in at once");
        sometimes("two readers are in", before > 0);
        thread::yield_now();
        self.0.fetch_sub(weight, SeqCst);
        drop(guard);
    }

    fn reader(&self, lock: &RedlockRwLock) -> thread::JoinHandle<()> {
        self.enter(lock.read(), 1)
    }

    fn writer(&self, lock: &RedlockRwLock) -> thread::JoinHandle<()> {
        self.enter(lock.write(), WRITER)
    }

    fn enter(&self, lock: Lock, weight: usize) -> thread::JoinHandle<()> {
        let inside = self.clone();
        thread::spawn(move || inside.visit(future::block_on(lock.into_future()), weight))
    }
}

/// The first reader leaves, while others come and one gives up.
#[test]
fn readers_that_come_against_the_first_that_leaves() {
    let reached = &[
        "a reader joins",
        "a reader asks",
        "two readers are in",
        "the last releases",
        "others stay",
    ];
    explore(
        "readers_that_come_against_the_first_that_leaves",
        reached,
        || {
            let world = World::new();
            let lock = world.redlock.rw_lock("k");
            let first = future::block_on(lock.read().into_future()).expect("it is free");
            let inside = Inside::default();
            let readers = [inside.reader(&lock), inside.reader(&lock)];
            let mut fickle = lock.read().into_future();
            let cancel = thread::spawn(move || {
                let _ = futures::FutureExt::now_or_never(&mut fickle);
            });
            let report = future::block_on(first.release());
            let is_released = report.outcome == crate::ReleaseOutcome::Released;
            sometimes("the last releases", is_released);
            sometimes("others stay", !is_released);
            for thread in readers {
                thread.join().unwrap();
            }
            cancel.join().unwrap();
            drop(lock);
            world.end();
        },
    );
}

/// Readers ask at the same moment, so that some wait for the answer to another one.
#[test]
fn readers_that_ask_at_once_beside_a_writer() {
    let reached = &["a reader joins", "a reader asks", "two readers are in"];
    explore("readers_that_ask_at_once_beside_a_writer", reached, || {
        let world = World::new();
        let lock = world.redlock.rw_lock("k");
        let inside = Inside::default();
        let threads = [
            inside.reader(&lock),
            inside.writer(&lock),
            inside.reader(&lock),
            inside.reader(&lock),
        ];
        for thread in threads {
            thread.join().unwrap();
        }
        drop(lock);
        world.end();
    });
}

/// The only reader leaves while another one comes, and a writer of another process waits. The nodes tell the writer.
#[test]
fn a_reader_that_comes_against_the_last_that_leaves_beside_another_client() {
    let reached = &[
        "a reader joins",
        "a reader asks",
        "the reader came first",
        "the writer came first",
    ];
    explore(
        "a_reader_that_comes_against_the_last_that_leaves_beside_another_client",
        reached,
        || {
            let readers = World::new();
            let writers = World::beside(&readers);
            let read = || readers.redlock.rw_lock("k").read().options(patient());
            let write = writers.redlock.rw_lock("k").write().options(patient());
            let last = readers.hold(read());
            let (inside, first) = (Inside::default(), First::default());
            inside.0.fetch_add(1, SeqCst);
            let writer = inside.enter(write, WRITER);
            let reader = inside.enter(read(), 1);
            let time = writers.run_time();
            let ends = [
                (reader, "the reader came first"),
                (writer, "the writer came first"),
            ];
            let ends = ends.map(|(visit, what)| {
                let first = first.clone();
                thread::spawn(move || {
                    visit.join().unwrap();
                    first.note(what);
                })
            });
            inside.0.fetch_sub(1, SeqCst);
            drop(last);
            for end in ends {
                end.join().unwrap();
            }
            time.stop();
            readers.drain();
            writers.end();
            readers.end();
        },
    );
}

/// A writer becomes a reader, while readers and a writer of its process wait.
#[test]
fn a_downgrade_against_those_that_wait() {
    let reached = &[
        "a reader joins",
        "two readers are in",
        "it is in beside another",
    ];
    explore("a_downgrade_against_those_that_wait", reached, || {
        let world = World::new();
        let lock = world.redlock.rw_lock("k");
        let writer = future::block_on(lock.write().into_future()).expect("it is free");
        let inside = Inside::default();
        let threads = [
            inside.reader(&lock),
            inside.reader(&lock),
            inside.writer(&lock),
        ];
        future::block_on(writer.downgrade()).expect("all nodes are there");
        let before = inside.0.fetch_add(1, SeqCst);
        assert!(before < WRITER, "a writer is in");
        sometimes("it is in beside another", before > 0);
        thread::yield_now();
        inside.0.fetch_sub(1, SeqCst);
        drop(writer);
        for thread in threads {
            thread.join().unwrap();
        }
        drop(lock);
        world.end();
    });
}
