use std::{collections::BTreeMap, time::Duration};

use redlock_core::{MemberId, Tenure};

use crate::node::redis::address::Endpoint;

/// One member's view of its authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::node::redis) struct View {
    /// The member that says it.
    pub(in crate::node::redis) myself: MemberId,
    /// All members that it knows, and where they are, if that is known. It may list itself or not.
    pub(in crate::node::redis) members: BTreeMap<MemberId, Option<Place>>,
    /// The owner of each node, in the order of the nodes.
    pub(in crate::node::redis) tenures: Vec<Option<Tenure>>,
    /// For how long the member has known the owners, at least. Zero if it does not say.
    pub(in crate::node::redis) age: Duration,
}

/// The address of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::node::redis) enum Place {
    /// The member announces it, so the user may translate it.
    Announced(Endpoint),
    /// The member knows no host of its own, and was reached at this one.
    Reached(Endpoint),
}

/// Reads the id of a member: 40 hexadecimal digits.
pub(in crate::node::redis) fn member_id(text: &str) -> Option<MemberId> {
    let digits: [u8; MemberId::LEN] = text.as_bytes().try_into().ok()?;
    let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
    is_hex.then(|| MemberId::new(digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_40_hexadecimal_digits() {
        assert!(member_id(&"0".repeat(40)).is_some());
        for odd in ["0".repeat(39), "0".repeat(41), "g".repeat(40), "".into()] {
            assert_eq!(member_id(&odd), None);
        }
    }
}
