use crate::Timestamp;

/// The time for which a lease backs off before its first attempt, so that other clients go first. See
/// [`Lease::back_off`](crate::Lease::back_off).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pause {
    /// When it is over.
    pub until: Timestamp,
    /// The clients that it is for.
    pub others: Others,
}

/// The other clients that may want a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Others {
    /// None came recently.
    None,
    /// They are notified when the lock is free.
    Notified,
    /// They may poll. A probe shows whether they come.
    Polling,
}

impl Pause {
    /// Returns whether more time is left after the pause than the pause takes.
    pub(super) fn fits(&self, now: Timestamp, deadline: Timestamp) -> bool {
        let time = self.until.saturating_duration_since(now);
        self.until.saturating_add(time) < deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::said::MS;

    #[test]
    fn a_pause_leaves_as_much_time_as_it_takes() {
        let at = |millis| Timestamp::ZERO.saturating_add(MS(millis));
        let pause = Pause {
            until: at(22),
            others: Others::Notified,
        };
        assert!(pause.fits(at(20), at(25)) && !pause.fits(at(20), at(24)));
    }
}
