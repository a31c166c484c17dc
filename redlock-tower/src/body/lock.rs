use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Buf;
use futures::{FutureExt, future::BoxFuture};
use http::{HeaderMap, header::CONTENT_LENGTH};
use http_body::Frame;
use redlock_tokio::LossReason;
use tokio::{task::AbortHandle, time::sleep};

use crate::{CallGuard, Locked, OnLost, mutex::Mutex};

/// The lock of a body, held for a limited time. Dropping it means that the body was dropped before its end.
///
/// A task enforces the limit, because nobody polls a body whose reader has stopped.
pub(super) struct BodyLock {
    guard: Arc<Mutex<Option<CallGuard>>>,
    /// Waits for the loss that cuts the body off, if losses do so. A body must be `Sync`, hence the mutex.
    loss: Option<Mutex<BoxFuture<'static, LossReason>>>,
    limit: AbortHandle,
    /// Whether anyone has asked for a frame.
    has_begun: bool,
    /// How many bytes are still to come, if the head has a length. The server asks for no more than that.
    left: Option<u64>,
}

impl BodyLock {
    pub(super) fn new(lock: Locked, max: Duration, head: &HeaderMap) -> Self {
        let is_cut_off = lock.rules().on_lost != OnLost::Signal;
        let watched = lock.clone();
        let loss = async move { watched.lost_by_layer().await };
        let guard = Arc::new(Mutex::new(Some(CallGuard::of_body(lock))));
        let limited = Arc::clone(&guard);
        let limit = tokio::spawn(async move {
            sleep(max).await;
            release(&limited);
        });
        let length = head
            .get(CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok());
        Self {
            guard,
            loss: is_cut_off.then(|| Mutex::new(loss.boxed())),
            limit: limit.abort_handle(),
            has_begun: false,
            left: length.and_then(|text| text.parse().ok()),
        }
    }

    /// Watches for a loss. Ready if the loss cuts the body off.
    pub(super) fn poll_cut_off(&mut self, cx: &mut Context<'_>) -> Poll<LossReason> {
        self.has_begun = true;
        match &self.loss {
            Some(loss) => loss.lock().poll_unpin(cx),
            None => Poll::Pending,
        }
    }

    /// Counts a frame, and returns whether the body now has the length that the head says.
    pub(super) fn is_complete_with<D: Buf>(&mut self, frame: &Frame<D>) -> bool {
        let length = frame.data_ref().map_or(0, Buf::remaining);
        let left = self.left.as_mut().map(|left| {
            *left = left.saturating_sub(length as u64);
            *left
        });
        left == Some(0)
    }

    pub(super) fn release(self) {
        release(&self.guard);
    }
}

impl Drop for BodyLock {
    fn drop(&mut self) {
        self.limit.abort();
        if self.has_begun {
            let guard = self.guard.lock().take();
            drop(guard);
        } else {
            // A body that is not sent at all, as for HEAD, has no work under way.
            release(&self.guard);
        }
    }
}

fn release(guard: &Mutex<Option<CallGuard>>) {
    // The mutex is free again before the lock is released.
    let guard = guard.lock().take();
    if let Some(guard) = guard {
        guard.release();
    }
}
