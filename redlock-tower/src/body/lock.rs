use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Buf;
use http::{HeaderMap, header::CONTENT_LENGTH};
use http_body::Frame;
use redlock_tokio::LossReason;
use tokio::{task::AbortHandle, time::sleep};

use crate::Holding;

/// The lock of a body, for a time at most. Dropping it means that the body did not come to its end.
///
/// The time is kept by a task: a body whose reader has stopped reading is not polled any more, and could
/// not keep it.
pub(super) struct BodyLock {
    holding: Arc<Mutex<Option<Holding>>>,
    cap: AbortHandle,
    /// Somebody has asked for a frame.
    begun: bool,
    /// How many bytes are still to come, if the head says so. Nobody asks for more than that.
    left: Option<u64>,
}

impl BodyLock {
    pub(super) fn new(holding: Holding, max: Duration, head: &HeaderMap) -> Self {
        let holding = Arc::new(Mutex::new(Some(holding)));
        let capped = Arc::clone(&holding);
        let cap = tokio::spawn(async move {
            sleep(max).await;
            release(&capped);
        });
        let length = head.get(CONTENT_LENGTH).and_then(|it| it.to_str().ok());
        Self {
            holding,
            cap: cap.abort_handle(),
            begun: false,
            left: length.and_then(|it| it.parse().ok()),
        }
    }

    /// Watches for a loss. Ready if it cuts the body off.
    pub(super) fn poll_cut_off(&mut self, cx: &mut Context<'_>) -> Poll<LossReason> {
        self.begun = true;
        match &mut *lock(&self.holding) {
            Some(holding) => holding.poll_cut_off(cx),
            None => Poll::Pending,
        }
    }

    /// Counts a frame, and returns whether all is there that the head promised.
    pub(super) fn is_whole<D: Buf>(&mut self, frame: &Frame<D>) -> bool {
        let length = frame.data_ref().map_or(0, Buf::remaining);
        let left = self.left.as_mut().map(|left| {
            *left = left.saturating_sub(length as u64);
            *left
        });
        left == Some(0)
    }

    pub(super) fn release(self) {
        release(&self.holding);
    }
}

impl Drop for BodyLock {
    fn drop(&mut self) {
        self.cap.abort();
        if self.begun {
            drop(take(&self.holding));
        } else {
            // Nobody wanted it, as with HEAD, so nothing of it is under way.
            release(&self.holding);
        }
    }
}

fn release(holding: &Mutex<Option<Holding>>) {
    if let Some(holding) = take(holding) {
        holding.release();
    }
}

fn take(holding: &Mutex<Option<Holding>>) -> Option<Holding> {
    lock(holding).take()
}

fn lock(holding: &Mutex<Option<Holding>>) -> MutexGuard<'_, Option<Holding>> {
    // No code panics while it holds the mutex.
    holding.lock().unwrap_or_else(PoisonError::into_inner)
}
