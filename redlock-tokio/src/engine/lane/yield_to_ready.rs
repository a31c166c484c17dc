use std::{future::poll_fn, task::Poll};

/// Lets the tasks that are ready to run on this thread run first.
///
/// Unlike [`tokio::task::yield_now`], this does not make the runtime poll its sockets and timers. That
/// would cost a system call if no other task is ready.
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
