use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use redlock_examples::lock;

use crate::name::Name;

/// The clients that are at work under each key. A lock that works never lets two of them in.
///
/// Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Sections(Arc<Inner>);

#[derive(Default)]
struct Inner {
    at_work: Mutex<HashMap<Name, u32>>,
    overlaps: AtomicU64,
}

/// A client at work under a key, until this is dropped.
pub(crate) struct Section {
    sections: Sections,
    key: Name,
}

impl Sections {
    /// Begins work under a key.
    pub(crate) fn enter(&self, key: &Name) -> Section {
        let mut at_work = lock(&self.0.at_work);
        let clients = at_work.entry(key.clone()).or_default();
        if *clients > 0 {
            self.0.overlaps.fetch_add(1, Ordering::Relaxed);
        }
        *clients += 1;
        Section {
            sections: self.clone(),
            key: key.clone(),
        }
    }

    /// Returns how often a client began its work while another was at work under the same key.
    pub(crate) fn overlaps(&self) -> u64 {
        self.0.overlaps.load(Ordering::Relaxed)
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        let mut at_work = lock(&self.sections.0.at_work);
        if let Some(clients) = at_work.get_mut(&self.key) {
            *clients -= 1;
        }
    }
}
