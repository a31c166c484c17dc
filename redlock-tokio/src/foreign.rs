//! Calls to code of the user that must not panic, and might.

use std::{
    any::Any,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Calls code of the user in a task of the driver, or in that of another user. Returns `None` if the code panics. A panic
/// that went on from here would end the task, and with it all locks.
///
/// The panic hook has reported the panic by then.
pub(crate) fn call<T>(code: impl FnOnce() -> T) -> Option<T> {
    let outcome = catch_unwind(AssertUnwindSafe(code));
    outcome.map_err(forget).ok()
}

/// Drops what a panic carries, which may panic in turn. What that carries is not dropped.
#[expect(clippy::mem_forget, reason = "see above")]
fn forget(carried: Box<dyn Any + Send>) {
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(carried)));
    mem::forget(dropped);
}
