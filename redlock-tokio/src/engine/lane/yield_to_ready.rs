use std::{future::poll_fn, task::Poll};

/// Lets the tasks that are ready to run on this thread run first.
///
/// Unlike [`tokio::task::yield_now`] it does not wait for a look at the sockets and timers, which
/// costs a system call where no other task is ready.
pub(super) async fn yield_to_ready() {
    let mut passed = false;
    poll_fn(|cx| {
        if passed {
            return Poll::Ready(());
        }
        passed = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
