use std::{
    panic,
    sync::{
        Once,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

/// Counts the panics in tokio's threads, because a panic in a task of the driver shows nowhere else. A
/// failing test panics in its own thread and is not counted.
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Begins to count. Only useful on a runtime with threads of its own.
pub(crate) fn watch() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if is_watched() {
                PANICS.fetch_add(1, SeqCst);
            }
            usual(info);
        }));
    });
}

/// Returns whether a panic here would be counted.
pub(crate) fn is_watched() -> bool {
    thread::current()
        .name()
        .is_some_and(|it| it.starts_with("tokio"))
}

pub(crate) fn count() -> usize {
    PANICS.load(SeqCst)
}
