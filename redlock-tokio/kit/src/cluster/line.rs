use std::ops::RangeInclusive;

/// A line of `CLUSTER NODES`: what one node says about another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) port: u16,
    pub(super) config_epoch: u64,
    /// The slots of which the node is the owner.
    pub(super) slots: Vec<RangeInclusive<u16>>,
    flags: Vec<String>,
    is_linked: bool,
}

impl Line {
    /// Reads the answer to `CLUSTER NODES`, or returns the line that is not understood.
    pub(super) fn read_all(answer: &str) -> Result<Vec<Self>, String> {
        let lines = answer.lines();
        lines
            .map(|line| Self::read(line).ok_or_else(|| format!("not understood: {line}")))
            .collect()
    }

    fn read(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let _id = words.next()?;
        let (address, _) = words.next()?.split_once('@')?;
        let (_, port) = address.rsplit_once(':')?;
        let flags = words.next()?.split(',').map(str::to_owned).collect();
        // The master, and the times of the last ping and pong.
        let mut words = words.skip(3);
        Some(Self {
            port: port.parse().ok()?,
            config_epoch: words.next()?.parse().ok()?,
            flags,
            is_linked: words.next()? == "connected",
            slots: words
                // Slots in brackets are those that move.
                .filter(|word| !word.starts_with('['))
                .map(range)
                .collect::<Option<_>>()?,
        })
    }

    pub(super) fn has_slot(&self, slot: u16) -> bool {
        self.slots.iter().any(|range| range.contains(&slot))
    }

    pub(super) fn is_master(&self) -> bool {
        self.flags.iter().any(|it| it == "master")
    }

    /// Returns what prevents the node from being used, if anything does.
    pub(super) fn trouble(&self) -> Option<&str> {
        const TROUBLE: &[&str] = &["fail", "fail?", "handshake", "noaddr"];
        let mut flags = self.flags.iter().map(String::as_str);
        let flag = flags.find(|it| TROUBLE.contains(it));
        flag.or((!self.is_linked).then_some("not connected"))
    }
}

fn range(word: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some(first.parse().ok()?..=last.parse().ok()?)
}
