use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::event::{Sale, Sales};

/// Keeps the sales in the memory of this process.
#[derive(Debug, Default)]
pub(crate) struct EmbeddedStore(Mutex<BTreeMap<String, Sales>>);

impl EmbeddedStore {
    pub(super) fn owner(&self, event: &str, seat: u32) -> Option<String> {
        let sales = self.lock();
        let sale = sales.get(event)?.sold.get(&seat)?;
        Some(sale.owner.clone())
    }

    pub(super) fn sell(&self, event: &str, seat: u32, to: &str) {
        let mut sales = self.lock();
        let sales = sales.entry(event.to_owned()).or_default();
        let earlier = sales.sold.get(&seat).map_or(0, |sale| sale.payments);
        sales.sold_twice += u64::from(earlier > 0);
        let sale = Sale {
            owner: to.to_owned(),
            payments: earlier + 1,
        };
        sales.sold.insert(seat, sale);
    }

    pub(super) fn take_back(&self, event: &str, seat: u32) {
        if let Some(sales) = self.lock().get_mut(event) {
            sales.sold.remove(&seat);
        }
    }

    pub(super) fn sales(&self, event: &str) -> Sales {
        self.lock().get(event).cloned().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Sales>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
