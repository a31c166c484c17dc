//! Times in messages.

use std::{fmt, time::Duration};

/// A time that was measured, in the largest unit that is not larger, with three decimals at most: `9.994 s`, `1.2 ms`.
#[derive(Clone, Copy, Debug)]
pub struct ShownTime(pub Duration);

impl fmt::Display for ShownTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let (unit, name) = match nanos {
            0 | 1_000_000_000.. => (1_000_000_000, "s"),
            1_000_000.. => (1_000_000, "ms"),
            1_000.. => (1_000, "us"),
            _ => (1, "ns"),
        };
        let decimals = format!(".{:03}", nanos % unit * 1_000 / unit);
        let decimals = decimals.trim_end_matches('0').trim_end_matches('.');
        write!(f, "{}{decimals} {name}", nanos / unit)
    }
}

/// A time to the nearest second: of nodes that may vote at about the same time, all have the same message. Not rounded up,
/// since people compare it with `max_ttl`, and a node has no vote for a little longer.
pub(crate) struct WholeSeconds(pub(crate) Duration);

impl fmt::Display for WholeSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.saturating_add(Duration::from_millis(500)).as_secs();
        write!(f, "about {} s", seconds.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_no_more_digits_than_people_read() {
        let shown = |nanos| ShownTime(Duration::from_nanos(nanos)).to_string();
        for (nanos, expected) in [
            (0, "0 s"),
            (999, "999 ns"),
            (75_400, "75.4 us"),
            (1_234_567, "1.234 ms"),
            (50_000_000, "50 ms"),
            (9_994_123_456, "9.994 s"),
            (10_000_000_000, "10 s"),
            (3_600_050_000_000, "3600.05 s"),
        ] {
            assert_eq!(shown(nanos), expected);
        }
    }
}
