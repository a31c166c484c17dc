//! The current state of an event, from the store and this process.

use std::sync::Arc;

use crate::{event::Event, office::BoxOffice, snapshot::Snapshot, store::StoreError};

impl BoxOffice {
    /// Returns the current state of an event.
    pub(crate) async fn look(&self, event: &Event) -> Result<Snapshot, StoreError> {
        let (sales, elsewhere) = self.store.read(event).await?;
        let sales = Arc::new(sales);
        event.remember(&sales);
        Ok(Snapshot::new(self, event, &sales, &elsewhere))
    }

    /// Returns the current state of an event. If the store does not answer, the state has the sales of its last
    /// answer.
    pub(crate) async fn look_or_remember(&self, event: &Event) -> Snapshot {
        self.look(event).await.unwrap_or_else(|_| {
            let sales = event.last_sales();
            Snapshot::new(self, event, &sales, &[]).of_the_past()
        })
    }
}
