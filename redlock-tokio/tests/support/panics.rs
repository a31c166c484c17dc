use std::{
    panic,
    sync::{
        Once,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

/// Panics in tokio's threads: one in a task of the driver would show nowhere else. A test that
/// fails panics in its own thread, and is not counted.
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Counts from now on. Only of use where the runtime has threads.
pub(crate) fn watch() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if thread::current()
                .name()
                .is_some_and(|it| it.starts_with("tokio"))
            {
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
