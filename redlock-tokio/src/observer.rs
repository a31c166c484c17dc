//! Code of the user that is told what happens to locks and nodes.

mod event;
#[cfg(feature = "metrics")]
mod metrics;

use std::sync::Arc;

pub(crate) use self::event::Subject;
pub use self::event::{Event, LockChange, LockEvent, NodeChange, NodeEvent};
#[cfg(feature = "metrics")]
pub use self::metrics::MetricsObserver;
use crate::foreign;

/// Is told of what happens to locks and nodes. Set by [`RedlockBuilder::observer`](crate::RedlockBuilder::observer).
///
/// A closure is an observer. `MetricsObserver`, behind the feature `metrics`, is one that counts.
///
/// ```
/// # use redlock_tokio::{Redlock, events::{Event, LockChange}};
/// # use std::sync::{Arc, atomic::{AtomicUsize, Ordering}};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let acquired = Arc::new(AtomicUsize::new(0));
/// let counter = Arc::clone(&acquired);
/// let builder = Redlock::builder().embedded().observer(move |event: &Event| {
///     if let Event::Lock(lock) = event
///         && let LockChange::Acquired { acquisition, .. } = &lock.change
///     {
///         println!("request {}: {acquisition}", lock.request());
///         counter.fetch_add(1, Ordering::Relaxed);
///     }
/// });
/// let redlock = builder.build().await?;
/// drop(redlock.lock("order:42").await?);
/// assert_eq!(acquired.load(Ordering::Relaxed), 1);
/// # Ok(())
/// # }
/// ```
///
/// # Promises
///
/// - The code runs in the tasks of callers and of connections, one after the other with their work, so it must return
///   soon and must not block. Send the event over a channel if there is more to do: an event owns its data, and cloning
///   it is cheap.
/// - No mutex of this crate is locked meanwhile. The code may use the [`Redlock`](crate::Redlock).
/// - A panic of the code ends nothing but the code. The panic hook reports it.
/// - The events of one lock come in their order, and so do those of one node. Those of two locks can come in the other
///   order if their tasks run on different threads. [`LockEvent::at`] has the time.
pub trait Observer: Send + Sync + 'static {
    /// Takes an event.
    fn observe(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync + 'static> Observer for F {
    fn observe(&self, event: &Event) {
        self(event);
    }
}

/// The observers of a client. Mostly there are none, and then nothing is prepared for them.
#[derive(Clone, Default)]
pub(crate) struct Observers(Option<Arc<[Arc<dyn Observer>]>>);

impl Observers {
    pub(crate) fn new(observers: Vec<Arc<dyn Observer>>) -> Self {
        Self((!observers.is_empty()).then(|| observers.into()))
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Passes an event on. Call this outside all locks.
    pub(crate) fn tell(&self, event: &Event) {
        for observer in self.0.iter().flat_map(|them| them.iter()) {
            foreign::call(|| observer.observe(event));
        }
    }
}
