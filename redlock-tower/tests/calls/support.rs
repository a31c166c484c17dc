//! A client over nodes in memory, inner services, and refused calls.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::atomic::AtomicUsize,
    time::Duration,
};

use redlock_tokio::{Redlock, test_util::TestNodes};
use redlock_tower::Locked;
use tower::{service_fn, util::ServiceFn};

pub(crate) const MS: fn(u64) -> Duration = Duration::from_millis;

/// Use on a paused runtime.
pub(crate) async fn paused() -> (TestNodes, Redlock) {
    let nodes = TestNodes::new();
    let redlock = nodes.connect().await.unwrap();
    (nodes, redlock)
}

/// Returns a counter that lives as long as the process, so that services need no clones of it.
pub(crate) fn counter() -> &'static AtomicUsize {
    Box::leak(Box::default())
}

/// What most inner services respond with.
pub(crate) type Done = Result<(), Infallible>;

/// An inner service that does nothing.
pub(crate) fn idle<T>() -> ServiceFn<fn(T) -> Ready<Done>> {
    service_fn(|_| ready(Ok(())))
}

/// Shares the lock with an inner service whose requests are nothing else.
pub(crate) fn share(request: &mut Option<Locked>, lock: Locked) {
    *request = Some(lock);
}

/// Asserts that a call fails with an error of this form, and returns the error.
macro_rules! assert_refused {
    ($call:expr, $form:pat) => {
        match $call.await {
            Err(error @ $form) => error,
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("it is not refused"),
        }
    };
}
pub(crate) use assert_refused;
