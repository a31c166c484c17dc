use std::{
    pin::Pin,
    task::{Context, Poll},
};

use redlock_tokio::{self as redlock, LockFuture, LockGuard};

use crate::{
    CallError, CallGuard, LockRequest,
    lock_request::Keys,
    rules::{QueuePlace, Rules},
    telemetry::WaitTimer,
};

/// A call that waits for its lock.
pub(crate) struct Waiting {
    keys: Keys,
    /// Empty once the call is refused.
    lock: Option<LockFuture>,
    timer: WaitTimer,
    /// Set if the call waits behind another one. A call that asks the nodes at once needs no place.
    place: Option<QueuePlace>,
}

impl Waiting {
    pub(crate) fn new(rules: &Rules, wanted: LockRequest) -> Self {
        let timer = rules.telemetry_of(&wanted).wait_timer();
        let (lock, keys) = rules.lock(wanted);
        Self {
            keys,
            lock: Some(lock.into_future()),
            timer,
            place: None,
        }
    }

    /// Waits for the lock. The first poll puts the call into the queue of its lock, or refuses it.
    pub(crate) fn poll(
        &mut self,
        rules: &Rules,
        cx: &mut Context<'_>,
    ) -> Poll<Result<LockGuard, redlock::LockError>> {
        let _entered = self.timer.span().enter();
        let Some(lock) = &mut self.lock else {
            return Poll::Pending;
        };
        let outcome = Pin::new(&mut *lock).poll(cx);
        if outcome.is_pending() && self.place.is_none() && lock.is_queued() {
            match rules.enter_queue() {
                Ok(place) => self.place = Some(place),
                Err(error) => {
                    self.lock = None;
                    return Poll::Ready(Err(error));
                }
            }
        }
        outcome
    }

    /// Ends the wait. The call goes on with the lock, or without one, or fails.
    pub(crate) fn end<E>(
        &mut self,
        rules: &Rules,
        outcome: Result<LockGuard, redlock::LockError>,
    ) -> Result<Option<CallGuard>, CallError<E>> {
        let error = match outcome {
            Ok(guard) => {
                self.timer.end("acquired");
                return Ok(Some(CallGuard::new(guard, rules, self.timer.hold_timer())));
            }
            Err(error) => error,
        };
        if let Some(fail_open) = rules.fail_open(&error) {
            fail_open.warn(rules.telemetry.label, &error);
            self.timer.end("failed_open");
            return Ok(None);
        }
        let error = CallError::from(error).expecting(|| rules.expected_wait(&self.keys));
        self.timer.end(result_of(&error));
        Err(error)
    }
}

/// Returns the value of the attribute `result` in metrics and logs.
fn result_of<E>(error: &CallError<E>) -> &'static str {
    match error {
        CallError::Contended(_) => "contended",
        CallError::QueueFull(_) => "queue_full",
        CallError::Unavailable(redlock::LockError::Overloaded(_)) => "overloaded",
        CallError::Unavailable(_) => "unavailable",
        _ => "invalid",
    }
}
