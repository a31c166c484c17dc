//! What the sessions of one `Redlock` can do.

use redlock_tokio::NodeError;

use crate::{message::refused, requests::ServiceId, rng::Rng};

/// One `Redlock` of a process, as servers know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub(crate) service: ServiceId,
    /// Its sessions hear of keys that are gone. If not, it has to probe again and again.
    pub(super) is_notified: bool,
    pub(super) markers: Markers,
}

/// Whether a client may keep the markers by which servers tell the ages of histories and tenures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Markers {
    Kept,
    /// Its sessions know no markers.
    Unknown,
    /// It has no right to the keys.
    Forbidden,
}

impl Client {
    pub(crate) fn draw(service: ServiceId, rng: &mut Rng) -> Self {
        Self {
            service,
            is_notified: rng.chance(750_000),
            markers: rng.pick(&[
                Markers::Kept,
                Markers::Kept,
                Markers::Kept,
                Markers::Kept,
                Markers::Unknown,
                Markers::Forbidden,
            ]),
        }
    }

    /// The same with all rights to markers.
    pub(crate) fn keeping_markers(self) -> Self {
        Self {
            markers: Markers::Kept,
            ..self
        }
    }
}

/// Returns what a server says to a client without the right to a marker.
pub(super) fn forbidden() -> NodeError {
    refused("NOPERM", "no right to the keys of markers")
}
