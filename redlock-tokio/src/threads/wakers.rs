//! Wakers that use locks of the same process while they wake, as executors may that poll in `wake`.

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Wake, Waker},
};

use futures::FutureExt;
use shuttle::{
    future,
    thread::{self, ThreadId},
};
use tokio::sync::oneshot;

use super::{
    explore::{explore, sometimes},
    world::World,
};
use crate::{LockFuture, Redlock};

/// When it wakes, it drops a waiter, polls another, and locks.
struct Reenters {
    redlock: Redlock,
    dropped: Mutex<Option<LockFuture>>,
    polled: Mutex<Option<LockFuture>>,
    woken: Mutex<Option<oneshot::Sender<ThreadId>>>,
}

impl Wake for Reenters {
    fn wake(self: Arc<Self>) {
        drop(take(&self.dropped));
        if let Some(mut waiter) = take(&self.polled) {
            let guard = (&mut waiter).now_or_never();
            sometimes("locked by a waker", matches!(guard, Some(Ok(_))));
        }
        let _ = self.redlock.lock("k").into_future().now_or_never();
        if let Some(woken) = take(&self.woken) {
            let _ = woken.send(thread::current().id());
        }
    }
}

fn take<T>(place: &Mutex<Option<T>>) -> Option<T> {
    place.lock().unwrap().take()
}

/// Returns a waker that uses locks, and what resolves when it is woken, to the thread that has woken it.
fn reenters(world: &World) -> (Waker, oneshot::Receiver<ThreadId>) {
    let (woken, was_woken) = oneshot::channel();
    let wait = || Mutex::new(Some(world.wait(world.lock("k"))));
    let waker = Waker::from(Arc::new(Reenters {
        redlock: world.redlock.clone(),
        dropped: wait(),
        polled: wait(),
        woken: Mutex::new(Some(woken)),
    }));
    (waker, was_woken)
}

#[test]
fn waker_of_a_waiter_that_locks() {
    let reached = &["woken by the release"];
    explore("waker_of_a_waiter_that_locks", reached, || {
        let world = World::new();
        let guard = world.hold(world.lock("k"));
        let mut first = world.wait(world.lock("k"));
        let (waker, woken) = reenters(&world);
        let pending = Pin::new(&mut first).poll(&mut Context::from_waker(&waker));
        assert!(pending.is_pending());
        drop(waker);
        let visit = world.visit(world.lock("k"));
        let release = thread::spawn(move || drop(guard));
        let by = future::block_on(woken).expect("the first waiter gets the lock");
        sometimes("woken by the release", by == release.thread().id());
        drop(future::block_on(first).expect("the first waiter has the lock"));
        visit.join().unwrap().expect("the others are gone");
        release.join().unwrap();
        world.end();
    });
}

#[test]
fn waker_of_a_holder_that_locks() {
    let reached = &["locked by a waker"];
    explore("waker_of_a_holder_that_locks", reached, || {
        let world = World::new();
        let guard = world.hold(world.lock("k"));
        let (waker, woken) = reenters(&world);
        let hold = guard.hold().view();
        {
            let mut lost = Box::pin(hold.lost());
            let pending = lost.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(pending.is_pending());
            drop(waker);
            let visit = world.visit(world.lock("k"));
            let release = thread::spawn(move || drop(guard));
            future::block_on(woken).expect("a holder sees the release");
            visit.join().unwrap().expect("the others are gone");
            release.join().unwrap();
        }
        drop(hold);
        world.end();
    });
}
