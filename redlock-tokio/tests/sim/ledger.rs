//! Who holds what, and until when it is valid by the clock of its own process.

use std::sync::{Arc, Mutex, MutexGuard};

use redlock_tokio::Hold;

use crate::{host::Host, trace::Seconds};

/// The holds of all processes. Clones are handles of the same ledger.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Holds>>);

#[derive(Default)]
struct Holds {
    records: Vec<Record>,
    /// Those that may still become valid for longer.
    open: Vec<Open>,
}

/// A lock that was held, in true time.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) process: usize,
    pub(crate) keys: Vec<String>,
    pub(crate) since: u64,
    /// Until when it was valid by the clock of its process, or until it was given back.
    pub(crate) until: u64,
}

struct Open {
    record: RecordId,
    host: Arc<Host>,
    hold: Hold,
    was_valid: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordId(usize);

/// Something that must not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation(pub(crate) String);

impl Ledger {
    /// Notes that a process has a lock from now on.
    pub(crate) fn begin(&self, host: &Arc<Host>, hold: &Hold) -> RecordId {
        let mut holds = self.lock();
        let keys = hold
            .keys()
            .map(|key| String::from_utf8_lossy(key.as_bytes()).into_owned());
        let since = host.now();
        let record = RecordId(holds.records.len());
        holds.records.push(Record {
            process: host.process,
            keys: keys.collect(),
            since,
            until: since,
        });
        holds.open.push(Open {
            record,
            host: Arc::clone(host),
            hold: hold.clone(),
            was_valid: true,
        });
        drop(holds);
        self.look();
        record
    }

    /// Notes that a process gives a lock back, or no longer relies on it.
    pub(crate) fn end(&self, record: RecordId) {
        let mut holds = self.lock();
        if let Some(position) = holds.open.iter().position(|it| it.record == record) {
            let open = holds.open.swap_remove(position);
            let record = &mut holds.records[record.0];
            record.until = record.until.min(open.host.now()).max(record.since);
        }
    }

    /// Notes that a process has ended.
    pub(crate) fn end_all_of(&self, host: &Arc<Host>) {
        let holds = self.lock();
        let of_host = holds.open.iter().filter(|it| Arc::ptr_eq(&it.host, host));
        let records: Vec<_> = of_host.map(|it| it.record).collect();
        drop(holds);
        for record in records {
            self.end(record);
        }
    }

    /// Looks until when each lock is valid by now. Call this after each step of a process.
    pub(crate) fn look(&self) {
        let mut holds = self.lock();
        let Holds { records, open } = &mut *holds;
        open.retain_mut(|it| {
            let remaining = it.hold.remaining();
            let record = &mut records[it.record.0];
            if remaining.is_zero() {
                it.was_valid = false;
                // The holder was told before the validity was over.
                record.until = record.until.min(it.host.now()).max(record.since);
            } else {
                assert!(
                    it.was_valid,
                    "a lock that was lost is valid again: {record:?}"
                );
                let end = it.host.timestamp().saturating_add(remaining);
                record.until = record.until.max(it.host.when(end));
            }
            it.was_valid
        });
    }

    /// Returns two holds of one key that were valid at the same time, if there are any.
    pub(crate) fn two_holders(&self) -> Option<Violation> {
        let holds = self.lock();
        let mut records: Vec<&Record> = holds.records.iter().collect();
        records.sort_by_key(|it| it.since);
        for (position, later) in records.iter().enumerate() {
            for earlier in &records[..position] {
                let is_shared = earlier.keys.iter().any(|key| later.keys.contains(key));
                if is_shared && later.since < earlier.until {
                    return Some(Violation(format!("two holders: {earlier} and {later}")));
                }
            }
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, Holds> {
        self.0
            .lock()
            .expect("no code panics while it holds this lock")
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::fmt::Display for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            process,
            keys,
            since,
            until,
        } = self;
        write!(
            f,
            "process {process} on {} from {} to {}",
            keys.join(","),
            Seconds(*since),
            Seconds(*until)
        )
    }
}
