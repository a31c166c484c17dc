//! Time, loss, cancellation: over nodes in memory, on a clock that the tests move.

mod support;

use std::{
    panic::{RefUnwindSafe, UnwindSafe},
    pin::pin,
    task::{Context, Waker},
    time::Duration,
};

use futures::future::BoxFuture;
use redlock_tokio::{
    Answer, Clock, Command, ExtendError, Hold, LockError, LockFuture, LockGuard, LockOptions,
    LossReason, MemoryNode, Node, NodeError, Redlock, ReleaseOutcome, Session, Ttl, WithLockError,
    test_util::TestNodes,
};
use support::MS;
use tokio::task::yield_now;

/// Five nodes and a lock on tokio's clock. Use on a paused runtime.
async fn paused() -> (Vec<MemoryNode>, Redlock) {
    let clock = Clock::tokio();
    let nodes: Vec<_> = (0..5)
        .map(|_| MemoryNode::with_clock(clock.clone()))
        .collect();
    let builder = Redlock::builder().custom_nodes(nodes.clone()).clock(clock);
    (nodes, builder.build().await.unwrap())
}

fn ttl(duration: Duration) -> Ttl {
    Ttl::new(duration).unwrap()
}

fn all_empty(nodes: &[MemoryNode]) -> bool {
    nodes.iter().all(MemoryNode::is_empty)
}

#[tokio::test(start_paused = true)]
async fn renewed_for_an_hour() {
    let (nodes, redlock) = paused().await;
    let guard = redlock.lock("k").max_hold(MS(7_200_000)).await.unwrap();
    tokio::time::sleep(MS(3_600_000)).await;
    assert!(guard.is_valid());
    assert!(guard.remaining() > MS(5000), "{:?}", guard.remaining());
    drop(guard);
    redlock.shutdown().await;
    assert!(all_empty(&nodes));
}

#[tokio::test(start_paused = true)]
async fn a_leaked_guard_is_renewed_until_max_hold_and_then_lost() {
    let (nodes, redlock) = paused().await;
    let guard = redlock.lock("k").await.unwrap();
    let hold = guard.hold().clone();
    #[expect(clippy::mem_forget, reason = "a leak is what is tested")]
    std::mem::forget(guard);
    tokio::time::sleep(MS(60_000)).await;
    assert!(hold.is_valid(), "60 s is the default");
    assert_eq!(hold.lost().await, LossReason::MaxHold);
    tokio::time::sleep(MS(1000)).await;
    assert!(all_empty(&nodes));
    assert!(matches!(
        hold.extend().await,
        Err(ExtendError::Lost(LossReason::MaxHold))
    ));
}

#[tokio::test(start_paused = true)]
async fn max_hold_holds_for_explicit_extensions_too() {
    let (_nodes, redlock) = paused().await;
    let guard = redlock.lock("k").max_hold(MS(4000)).await.unwrap();
    tokio::time::sleep(MS(4001)).await;
    assert!(guard.is_valid());
    assert!(matches!(
        guard.extend().await,
        Err(ExtendError::MaxHold { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn max_hold_holds_without_renewal_too() {
    let (_nodes, redlock) = paused().await;
    let options = LockOptions::new().no_renewal().max_hold(MS(15_000));
    let guard = redlock.lock("k").options(options).await.unwrap();
    tokio::time::sleep(MS(8000)).await;
    guard.extend().await.unwrap();
    tokio::time::sleep(MS(8000)).await;
    assert!(matches!(
        guard.extend().await,
        Err(ExtendError::MaxHold { .. })
    ));
    assert_eq!(guard.lost().await, LossReason::MaxHold);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_lost_before_anybody_looked_is_not_given_out() {
    let (_nodes, redlock) = paused().await;
    let options = LockOptions::new().ttl(MS(300)).no_renewal();
    let mut waiting = redlock.lock("k").options(options).into_future();
    let mut cx = Context::from_waker(Waker::noop());
    assert!(pin!(&mut waiting).poll(&mut cx).is_pending());
    tokio::time::sleep(MS(400)).await;
    let error = waiting.await.unwrap_err();
    assert!(matches!(error, LockError::TooSlow(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn held_while_a_minority_is_down_and_lost_at_the_end_of_validity_with_a_majority() {
    let (nodes, redlock) = paused().await;
    let guard = redlock.lock("k").await.unwrap();
    nodes[0].set_down(true);
    nodes[1].set_down(true);
    tokio::time::sleep(MS(30_000)).await;
    assert!(guard.is_valid());
    nodes[2].set_down(true);
    let error = guard.extend().await.unwrap_err();
    let ExtendError::NoQuorum {
        remaining,
        nodes: reports,
    } = error
    else {
        panic!("{error}");
    };
    assert!(
        guard.is_valid() && remaining > Duration::ZERO,
        "a failed extension takes nothing"
    );
    assert_eq!(reports.len(), 3);
    let validity = guard.remaining();
    let before = tokio::time::Instant::now();
    assert_eq!(guard.lost().await, LossReason::Expired);
    let late = before.elapsed().saturating_sub(validity);
    assert!(
        late <= MS(2),
        "reported {late:?} late; timers count whole milliseconds"
    );
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_failed_is_tried_again_before_it_is_too_late() {
    let (nodes, redlock) = paused().await;
    let guard = redlock.lock("k").await.unwrap();
    nodes[..3].iter().for_each(|it| it.set_down(true));
    tokio::time::sleep(MS(6000)).await;
    nodes[..3].iter().for_each(|it| it.set_down(false));
    tokio::time::sleep(MS(20_000)).await;
    assert!(guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn forgotten_keys_on_a_majority_are_a_loss() {
    let (nodes, redlock) = paused().await;
    let guard = redlock.lock("k").await.unwrap();
    nodes[..3].iter().for_each(MemoryNode::clear);
    assert_eq!(
        guard.extend().await,
        Err(ExtendError::Lost(LossReason::KeysLost))
    );
    assert!(!guard.is_valid());
    assert_eq!(guard.release().await.outcome, ReleaseOutcome::NotHeld);
    redlock.shutdown().await;
    assert!(all_empty(&nodes), "the rest of the keys was released");
}

#[tokio::test(start_paused = true)]
async fn waits_for_a_foreign_key_to_expire() {
    let (nodes, redlock) = paused().await;
    nodes
        .iter()
        .for_each(|it| it.insert("k", "foreign", ttl(MS(3000))));
    let before = tokio::time::Instant::now();
    let guard = redlock.lock("k").await.unwrap();
    let waited = before.elapsed();
    assert!(waited >= MS(3000) && waited < MS(3300), "{waited:?}");
    assert!(guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn with_lock_does_the_work_and_releases() {
    let (nodes, redlock) = paused().await;
    let result = redlock
        .with_lock("k", async |hold| {
            assert!(hold.is_valid());
            assert!(redlock.try_lock("k").await.is_err());
            tokio::time::sleep(MS(30_000)).await;
            "done"
        })
        .await;
    assert_eq!(result.unwrap(), "done");
    redlock.shutdown().await;
    assert!(all_empty(&nodes));
}

#[tokio::test(start_paused = true)]
async fn with_lock_drops_the_work_when_the_lock_is_lost() {
    let (nodes, redlock) = paused().await;
    let mut steps = 0;
    let result = redlock
        .with_lock("k", async |_hold| {
            loop {
                steps += 1;
                if steps == 10 {
                    nodes.iter().for_each(MemoryNode::clear);
                }
                tokio::time::sleep(MS(1000)).await;
            }
        })
        .await;
    let result: Result<(), _> = result;
    assert!(
        matches!(result, Err(WithLockError::Lost(LossReason::KeysLost))),
        "{result:?}"
    );
    assert!(
        (10..14).contains(&steps),
        "cut off at the next extension: {steps}"
    );
}

#[tokio::test]
async fn a_blocked_executor_is_seen_through_by_the_clock() {
    // The system's clock, and one thread: nothing can run while it is blocked.
    let redlock = Redlock::embedded().await.unwrap();
    let blocked = redlock.lock("k").ttl(MS(200)).await.unwrap();
    std::thread::sleep(MS(250));
    assert!(!blocked.is_valid(), "before any task could run");
    assert_eq!(blocked.remaining(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_guard_dropped_in_a_panic_is_released() {
    let (nodes, redlock) = paused().await;
    let task = tokio::spawn({
        let redlock = redlock.clone();
        async move {
            let _guard = redlock.lock("k").await.unwrap();
            panic!("in the critical section");
        }
    });
    assert!(task.await.unwrap_err().is_panic());
    redlock.shutdown().await;
    assert!(all_empty(&nodes));
}

#[tokio::test(start_paused = true)]
async fn a_guard_dropped_outside_of_the_runtime_is_released() {
    let (nodes, redlock) = paused().await;
    let guard = redlock.lock("k").await.unwrap();
    std::thread::spawn(|| drop(guard)).join().unwrap();
    redlock.shutdown().await;
    assert!(all_empty(&nodes));
}

/// A node in memory that takes a number of turns of the runtime to hear and to answer.
struct SlowNode {
    inner: MemoryNode,
    turns: usize,
}

impl Node for SlowNode {
    fn address(&self) -> &str {
        self.inner.address()
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        Box::pin(async {
            Ok(Box::new(Self {
                inner: self.inner.clone(),
                turns: self.turns,
            }) as Box<dyn Session>)
        })
    }
}

impl Session for SlowNode {
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
        let answers = self.inner.execute(batch);
        let turns = self.turns;
        Box::pin(async move {
            for _ in 0..turns {
                yield_now().await;
            }
            answers.await
        })
    }
}

/// Polls the future of a lock `polls` times, with a turn of the runtime after each, and drops it.
async fn poll_and_drop(future: LockFuture, polls: usize) -> bool {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..polls {
        if future.as_mut().poll(&mut cx).is_ready() {
            return true;
        }
        yield_now().await;
    }
    false
}

#[tokio::test(start_paused = true)]
async fn cancelled_at_any_poll_it_leaves_nothing_behind() {
    let clock = Clock::tokio();
    let nodes: Vec<_> = (0..5)
        .map(|_| MemoryNode::with_clock(clock.clone()))
        .collect();
    let slow = nodes.iter().enumerate().map(|(index, node)| SlowNode {
        inner: node.clone(),
        turns: 5 * index,
    });
    let builder = Redlock::builder().custom_nodes(slow).clock(clock);
    let redlock = builder.build().await.unwrap();
    let mut finished = 0;
    let mut half_way = 0;
    for polls in 0..40 {
        if poll_and_drop(redlock.lock("k").into_future(), polls).await {
            finished += 1;
        } else if nodes.iter().any(|it| !it.is_empty()) {
            half_way += 1;
        }
        tokio::time::sleep(MS(1)).await;
        assert!(all_empty(&nodes), "after {polls} polls");
    }
    assert!(half_way > 5 && finished > 5, "{half_way} and {finished}");
}

#[tokio::test(start_paused = true)]
async fn cancelled_while_contending_it_leaves_nothing_behind() {
    let (nodes, redlock) = paused().await;
    // Two nodes are taken, so that each attempt sets keys on some nodes and fails only if the
    // third is taken too.
    nodes[..3]
        .iter()
        .for_each(|it| it.insert("k", "foreign", ttl(MS(3_600_000))));
    for wait in 0..200 {
        let waiting = redlock.lock("k").into_future();
        assert!(tokio::time::timeout(MS(wait * 7), waiting).await.is_err());
        tokio::time::sleep(MS(1)).await;
        assert!(nodes[3..].iter().all(MemoryNode::is_empty), "after {wait}");
    }
    assert!(
        nodes[..3]
            .iter()
            .all(|it| it.value("k").as_deref() == Some(b"foreign"))
    );
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_guards_are_renewed_together() {
    let (nodes, redlock) = paused().await;
    let mut guards = Vec::new();
    for number in 0..10_000 {
        guards.push(redlock.lock(format!("k{number}")).await.unwrap());
    }
    tokio::time::sleep(MS(45_000)).await;
    assert!(guards.iter().all(|it| it.is_valid()));
    drop(guards);
    redlock.shutdown().await;
    assert!(all_empty(&nodes));
}

#[tokio::test(start_paused = true)]
async fn options_of_the_builder_are_defaults_and_those_of_a_lock_win() {
    let clock = Clock::tokio();
    let nodes = (0..3).map(|_| MemoryNode::with_clock(clock.clone()));
    let builder = Redlock::builder()
        .custom_nodes(nodes)
        .clock(clock.clone())
        .max_ttl(MS(8000))
        .options(LockOptions::new().ttl(MS(2000)).wait(MS(300)));
    let redlock = builder.build().await.unwrap();
    let guard = redlock.lock("k").await.unwrap();
    assert!(guard.remaining() <= MS(2000));
    let before = tokio::time::Instant::now();
    assert!(redlock.lock("k").await.is_err());
    assert!(before.elapsed() <= MS(300));
    assert!(redlock.lock("k").wait(MS(1000)).await.is_err());
    assert!(before.elapsed() >= MS(900), "{:?}", before.elapsed());
    let long = redlock.lock("other").ttl(MS(8000)).await.unwrap();
    assert!(long.remaining() > MS(7000));
    let error = redlock.lock("other").ttl(MS(8001)).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("longer than max_ttl, which is 8s"),
        "{error}"
    );
}

/// A lock whose future is woken and never polled again, such as a branch of a `select!` that is not
/// looked at while another one runs.
#[tokio::test(start_paused = true)]
async fn a_lock_that_nobody_takes_is_renewed_only_once_it_is_taken() {
    let (nodes, redlock) = paused().await;
    let mut cx = Context::from_waker(Waker::noop());
    let mut future = pin!(redlock.lock("k").into_future());
    assert!(future.as_mut().poll(&mut cx).is_pending());
    tokio::time::sleep(MS(9000)).await;
    assert!(!all_empty(&nodes), "nine of ten seconds have passed");
    tokio::time::sleep(MS(1001)).await;
    assert!(all_empty(&nodes), "it was renewed though nobody took it");
    let error = future.await.unwrap_err();
    assert!(matches!(error, LockError::TooSlow(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_taken_late_is_renewed_from_then_on() {
    let (_nodes, redlock) = paused().await;
    let mut cx = Context::from_waker(Waker::noop());
    let mut future = pin!(redlock.lock("k").into_future());
    assert!(future.as_mut().poll(&mut cx).is_pending());
    tokio::time::sleep(MS(9000)).await;
    let guard = future.await.unwrap();
    assert!(guard.remaining() < MS(1000), "{:?}", guard.remaining());
    tokio::time::sleep(MS(1)).await;
    assert!(guard.remaining() > MS(9000), "{:?}", guard.remaining());
    tokio::time::sleep(MS(20_000)).await;
    assert!(guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_handed_over_and_not_taken_is_not_renewed() {
    let (nodes, redlock) = paused().await;
    let first = redlock.lock("k").await.unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let mut second = pin!(redlock.lock("k").into_future());
    assert!(second.as_mut().poll(&mut cx).is_pending());
    assert_eq!(first.release().await.outcome, ReleaseOutcome::HandedOver);
    tokio::time::sleep(MS(10_001)).await;
    assert!(all_empty(&nodes), "it was renewed though nobody took it");
    let error = second.await.unwrap_err();
    assert!(matches!(error, LockError::TooSlow(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_test_can_lose_the_next_lock_while_the_last_release_is_on_its_way() {
    let nodes = TestNodes::new();
    let redlock = nodes.connect().await.unwrap();
    drop(
        redlock
            .lock("k")
            .options(LockOptions::new().no_handover())
            .await
            .unwrap(),
    );
    assert!(nodes.is_locked("k"), "the release has not arrived yet");
    nodes.lose_next("k");
    let guard = redlock.lock("k").await.unwrap();
    assert_eq!(guard.lost().await, LossReason::KeysLost);
}

/// Nobody renews a lock without its runtime, so the future must not give it out, nor blame the nodes.
#[test]
fn a_lock_whose_runtime_died_before_it_was_taken_is_refused_because_of_the_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    let redlock = runtime.block_on(Redlock::embedded()).unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let mut future = pin!(redlock.lock("k").into_future());
    runtime.block_on(async {
        assert!(future.as_mut().poll(&mut cx).is_pending());
        // The lanes answer.
        tokio::time::sleep(MS(50)).await;
    });
    drop(runtime);
    match future.as_mut().poll(&mut cx) {
        std::task::Poll::Ready(Err(LockError::ShutDown)) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn handles_and_guards_can_cross_catch_unwind() {
    fn assert_unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}
    assert_unwind_safe::<Redlock>();
    assert_unwind_safe::<LockGuard>();
    assert_unwind_safe::<Hold>();
    assert_unwind_safe::<LockFuture>();
}
