use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use redlock_examples::lock;

use crate::name::Name;

/// The clients that are at work under each key. A lock that works never lets two of them in.
///
/// Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Sections(Arc<Mutex<AtWork>>);

#[derive(Default)]
struct AtWork {
    clients: HashMap<Name, u32>,
    overlaps: u64,
}

/// A client at work under a key, until this is dropped.
pub(crate) struct Section {
    sections: Sections,
    key: Name,
}

impl Sections {
    /// Begins work under a key.
    pub(crate) fn enter(&self, key: &Name) -> Section {
        let AtWork { clients, overlaps } = &mut *lock(&self.0);
        let clients = clients.entry(key.clone()).or_default();
        *overlaps += u64::from(*clients > 0);
        *clients += 1;
        Section {
            sections: self.clone(),
            key: key.clone(),
        }
    }

    /// Returns how often a client began its work while another was at work under the same key.
    pub(crate) fn overlaps(&self) -> u64 {
        lock(&self.0).overlaps
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        if let Some(clients) = lock(&self.sections.0).clients.get_mut(&self.key) {
            *clients -= 1;
        }
    }
}
