use std::ops::Range;

/// The clients of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    /// How many keys there are.
    pub(crate) keys: usize,
    /// How many clients want all of them.
    pub(crate) several: usize,
    /// How many clients want one of them each.
    pub(crate) single: usize,
    /// Whether the leases of several keys know that they have several.
    pub(crate) gathers: bool,
}

impl Crowd {
    pub(crate) fn for_one_key(single: usize) -> Self {
        Self {
            keys: 1,
            several: 0,
            single,
            gathers: false,
        }
    }

    pub(crate) fn others(&self) -> u64 {
        (self.several + self.single) as u64 - 1
    }

    pub(crate) fn keys_of(&self, client: usize) -> Range<usize> {
        match client.checked_sub(self.several) {
            None => 0..self.keys,
            Some(single) => {
                let key = single % self.keys;
                key..key + 1
            }
        }
    }
}
