//! Calls to code of the user that must not panic, and might.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls code of the user in a task of the driver, or in that of another user. Returns `None` if the code panics. A panic
/// that went on from here would end the task, and with it all locks.
///
/// The panic hook has reported the panic by then.
pub(crate) fn call<T>(code: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(code)).ok()
}
