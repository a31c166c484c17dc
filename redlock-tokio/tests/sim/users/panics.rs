//! Panics: those that users want, and all others.

use std::{cell::RefCell, panic, sync::Once};

/// What a user says when it panics on purpose.
pub(crate) const INTENDED: &str = "a user panics on purpose";

thread_local! {
    /// One thread runs one world.
    static OTHERS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Starts to note panics that no user wants.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if panic.payload().downcast_ref() == Some(&INTENDED) {
                return;
            }
            OTHERS.with_borrow_mut(|others| others.push(panic.to_string()));
            usual(panic);
        }));
    });
    OTHERS.take();
}

/// Returns the panics of this thread that no user wanted, since the last call.
pub(crate) fn take() -> Vec<String> {
    OTHERS.take()
}
