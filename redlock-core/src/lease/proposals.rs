use crate::{FencingToken, Timestamp};

/// The fencing tokens that the attempts of one lease propose.
///
/// Each attempt makes a new proposal. A proposal from before a pause may be smaller than the token of
/// another holder that came and went meanwhile, and a node that restarted since has lost the counter that
/// would show this. An attempt counts no node that came up less than the longest ttl before the attempt
/// began. So a forgotten token is older than the new proposal by at least that time, and smaller, if wall
/// clocks differ by less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Proposals {
    /// The wall clock in microseconds, as it was at `drawn_at`.
    first: FencingToken,
    drawn_at: Timestamp,
    /// The largest token that was proposed, or that a node has told.
    largest: Option<FencingToken>,
}

impl Proposals {
    pub(super) const fn new(first: FencingToken, drawn_at: Timestamp) -> Self {
        Self {
            first,
            drawn_at,
            largest: None,
        }
    }

    /// Returns the proposal of an attempt that starts at `now`: the first proposal plus the time that has
    /// passed, and more than all tokens that are known. After the last token, that token again, which the
    /// nodes then refuse.
    pub(super) fn draw(&mut self, now: Timestamp) -> FencingToken {
        let passed = now.saturating_duration_since(self.drawn_at).as_micros();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        let by_clock = FencingToken::new(self.first.get().saturating_add(passed));
        let least = self.largest.map(|fence| fence.next().unwrap_or(fence));
        let proposal = least.map_or(by_clock, |least| least.max(by_clock));
        self.largest = Some(proposal);
        proposal
    }

    /// Returns a proposal that surpasses this counter, or `None` if there is no larger token.
    pub(super) fn surpass(&mut self, counter: FencingToken) -> Option<FencingToken> {
        self.note(counter);
        let proposal = self.largest.and_then(FencingToken::next)?;
        self.largest = Some(proposal);
        Some(proposal)
    }

    /// Notes the counter of a node.
    pub(super) fn note(&mut self, counter: FencingToken) {
        self.largest = self.largest.max(Some(counter));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO.saturating_add(Duration::from_millis(millis))
    }

    fn proposals(first: u64) -> Proposals {
        Proposals::new(FencingToken::new(first), at(500))
    }

    #[test]
    fn proposals_grow_by_one_in_a_microsecond() {
        let mut proposals = proposals(7);
        assert_eq!(proposals.draw(at(500)).get(), 7);
        assert_eq!(proposals.draw(at(503)).get(), 3007);
        // Time that stands still, or goes back, is no reason to propose the same again.
        assert_eq!(proposals.draw(at(503)).get(), 3008);
        assert_eq!(proposals.draw(at(0)).get(), 3009);
    }
}
