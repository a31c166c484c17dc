//! Wakers that use locks of the same process while they wake, as executors may that poll in `wake`.

use std::{
    sync::{Arc, Mutex},
    task::{Context, Wake, Waker},
};

use futures::FutureExt;
use shuttle::{future, thread};
use tokio::sync::oneshot;

use super::{
    explore::{explore, sometimes},
    world::World,
};

/// What a waker does once.
struct Calls(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        let call = self.0.lock().unwrap().take();
        call.into_iter().for_each(|call| call());
    }
}

/// Polls a future with a waker that drops a waiter, polls another, and locks. Returns what resolves then.
fn poll<T>(world: &World, future: &mut (impl Future<Output = T> + Unpin)) -> oneshot::Receiver<()> {
    let (woken, was_woken) = oneshot::channel();
    let [dropped, mut polled] = [0; 2].map(|_| world.wait(world.lock("k")));
    let redlock = world.redlock.clone();
    let calls: Box<dyn FnOnce() + Send> = Box::new(move || {
        drop(dropped);
        let guard = (&mut polled).now_or_never();
        sometimes("locked by a waker", matches!(guard, Some(Ok(_))));
        drop((guard, polled));
        let _ = redlock.lock("k").into_future().now_or_never();
        let _ = woken.send(());
    });
    let waker = Waker::from(Arc::new(Calls(Mutex::new(Some(calls)))));
    let polled = future.poll_unpin(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    was_woken
}

/// A waiter and a holder, each with a waker that locks.
#[test]
fn wakers_that_lock() {
    explore(&["locked by a waker"], || {
        let world = World::new();
        let guard = world.hold(world.lock("k"));
        let hold = guard.hold().view();
        let mut lost = Box::pin(async move { hold.lost().await });
        let was_released = poll(&world, &mut lost);
        let mut first = world.wait(world.lock("k"));
        let woken = poll(&world, &mut first);
        let visit = world.visit(world.lock("k"));
        let release = thread::spawn(move || drop(guard));
        future::block_on(woken).expect("the first waiter gets the lock");
        future::block_on(was_released).expect("a holder sees the release");
        drop(future::block_on(first).expect("the first waiter has the lock"));
        visit.join().unwrap().expect("the others are gone");
        release.join().unwrap();
        drop(lost);
        world.end();
    });
}

/// Another task polls a waiter. The last waker of the first task ends, with the waiters that it has.
#[test]
fn waker_whose_end_gives_up() {
    explore(&[], || {
        let world = World::new();
        let guard = world.hold(world.lock("k"));
        let mut first = world.wait(world.lock("k"));
        let _woken = poll(&world, &mut first);
        assert!((&mut first).now_or_never().is_none());
        drop((first, guard));
        world.end();
    });
}
