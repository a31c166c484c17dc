use std::ops::Range;

use crate::{host::Host, rng::Rng};

/// How many addresses a group of sentinels has.
const ADDRESSES: usize = 3;

/// Some addresses of a group lead to the sentinels of another group for a while, as one process sees them.
#[derive(Clone, Debug)]
pub(super) struct Detour {
    /// By address. At least one leads to its own group.
    is_astray: [bool; ADDRESSES],
    during: Range<u64>,
}

impl Detour {
    /// Draws one that begins when the process starts, or while it runs.
    pub(super) fn draw(rng: &mut Rng, host: &Host, max_ttl: u64) -> Self {
        let mut is_astray = [true; ADDRESSES];
        is_astray[rng.usize(..ADDRESSES)] = false;
        if rng.bool() {
            is_astray[rng.usize(..ADDRESSES)] = false;
        }
        let from = if rng.bool() {
            host.now()
        } else {
            host.now() + rng.around(5 * max_ttl)
        };
        Self {
            is_astray,
            during: from..from + rng.around(max_ttl),
        }
    }

    pub(super) fn leads_astray(&self, at: u64, address: usize) -> bool {
        self.during.contains(&at) && self.is_astray[address]
    }
}
