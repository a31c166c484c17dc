//! What a layer does with its calls.

use redlock_tower::{OnCancel, OnLost};

use crate::rng::Rng;

/// The rules of a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) is_detached: bool,
    pub(super) on_lost: OnLost,
    pub(super) on_cancel: OnCancel,
    pub(super) fails_open: bool,
    pub(super) max_waiters: usize,
}

impl Rules {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        Self {
            is_detached: rng.bool(),
            on_lost: rng.pick(&[OnLost::Signal, OnLost::Fail, OnLost::Cancel]),
            on_cancel: rng.pick(&[OnCancel::Release, OnCancel::Release, OnCancel::Expire]),
            fails_open: rng.chance(300_000),
            max_waiters: rng.pick(&[usize::MAX, 1]),
        }
    }
}
