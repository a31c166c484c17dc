//! Each kind of lock.

use redlock_tokio::{Lock, Redlock};

/// What is asked for, and what keeps a request for it waiting.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) lock: fn(&Redlock) -> Lock,
    pub(crate) holder: fn(&Redlock) -> Lock,
}

/// Each has keys of its own.
pub(crate) const KINDS: [Kind; 6] = [
    Kind::of("lock", |it| it.lock("k")),
    Kind::of("fenced lock", |it| it.lock("fenced").fenced(true)),
    Kind::of("several keys", |it| it.lock_all(["a", "b"])),
    Kind::of("permit", |it| it.semaphore("permits", 1).acquire()),
    Kind::of("writer", |it| it.rw_lock("written").write()),
    Kind {
        name: "reader",
        lock: |it| it.rw_lock("read").read(),
        holder: |it| it.rw_lock("read").write(),
    },
];

impl Kind {
    const fn of(name: &'static str, lock: fn(&Redlock) -> Lock) -> Self {
        let holder = lock;
        Self { name, lock, holder }
    }
}
