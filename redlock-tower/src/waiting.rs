use std::{
    pin::Pin,
    task::{Context, Poll},
};

use redlock_tokio::{self as redlock, LockFuture, LockGuard};

use crate::{
    CallGuard, LockError, LockRequest,
    lock_request::Keys,
    rules::{QueuePlace, Rules},
    telemetry::WaitTimer,
};

/// A call that waits for its lock.
pub(crate) struct Waiting {
    keys: Keys,
    lock: LockFuture,
    timer: WaitTimer,
    _place: QueuePlace,
}

impl Waiting {
    /// Puts a call into the queue of its lock.
    pub(crate) fn start<E>(rules: &Rules, wanted: LockRequest) -> Result<Self, LockError<E>> {
        let (lock, keys) = rules.lock(wanted);
        let mut timer = rules.telemetry.wait_timer();
        match rules.enter_queue() {
            Ok(place) => Ok(Self {
                keys,
                lock: lock.into_future(),
                timer,
                _place: place,
            }),
            Err(error) => Err(refuse(rules, &keys, &mut timer, error)),
        }
    }

    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<LockGuard, redlock::LockError>> {
        let _entered = self.timer.span().enter();
        Pin::new(&mut self.lock).poll(cx)
    }

    /// Ends the wait. The call goes on with the lock, or without one, or fails.
    pub(crate) fn end<E>(
        &mut self,
        rules: &Rules,
        outcome: Result<LockGuard, redlock::LockError>,
    ) -> Result<Option<CallGuard>, LockError<E>> {
        let error = match outcome {
            Ok(guard) => {
                self.timer.end("acquired");
                return Ok(Some(rules.hold(guard)));
            }
            Err(error) => error,
        };
        if let Some(fail_open) = rules.fail_open(&error) {
            fail_open.warn(rules.telemetry.label(), &error);
            self.timer.end("failed_open");
            return Ok(None);
        }
        Err(refuse(rules, &self.keys, &mut self.timer, error))
    }
}

fn refuse<E>(
    rules: &Rules,
    keys: &Keys,
    timer: &mut WaitTimer,
    error: redlock::LockError,
) -> LockError<E> {
    let error = LockError::from(error).expecting(|| rules.expected_wait(keys));
    timer.end(result_of(&error));
    error
}

/// Returns the value of the attribute `result` in metrics and logs.
fn result_of<E>(error: &LockError<E>) -> &'static str {
    match error {
        LockError::Contended(_) => "contended",
        LockError::QueueFull(_) => "queue_full",
        LockError::WaitTooLong(_) => "wait_too_long",
        LockError::Unavailable(_) => "unavailable",
        _ => "invalid",
    }
}
