use std::collections::BTreeMap;

/// The sales of an event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sales {
    /// The sold seats, by number.
    pub(crate) sold: BTreeMap<u32, Sale>,
    /// How many sales were made of seats that were sold already, which the lock prevents.
    pub(crate) sold_twice: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Sale {
    pub(crate) owner: String,
    /// How many people have paid for the seat.
    pub(crate) payments: u32,
}
