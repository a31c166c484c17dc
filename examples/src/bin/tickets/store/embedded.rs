use std::{collections::BTreeMap, sync::Mutex};

use redlock_examples::lock;

use crate::event::{Sale, Sales};

/// Keeps the sales in the memory of this process.
#[derive(Debug, Default)]
pub(crate) struct EmbeddedStore(Mutex<BTreeMap<String, Sales>>);

impl EmbeddedStore {
    pub(super) fn owner(&self, event: &str, seat: u32) -> Option<String> {
        let sales = lock(&self.0);
        let sale = sales.get(event)?.sold.get(&seat)?;
        Some(sale.owner.clone())
    }

    pub(super) fn sell(&self, event: &str, seat: u32, to: &str) {
        let mut sales = lock(&self.0);
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
        if let Some(sales) = lock(&self.0).get_mut(event) {
            sales.sold.remove(&seat);
        }
    }

    pub(super) fn sales(&self, event: &str) -> Sales {
        lock(&self.0).get(event).cloned().unwrap_or_default()
    }
}
