//! Places in the lines of keys, for sessions that take them by themselves.

use redlock_tokio::{
    Key,
    node::{LineAction, LineRequest, Member},
};

pub(crate) fn asking(key: &str, action: LineAction) -> LineRequest {
    LineRequest {
        key: Key::new(key).unwrap(),
        of_several: false,
        action,
        client_name: None,
    }
}

pub(crate) fn join(member: u64) -> LineAction {
    LineAction::Join {
        member: Member(member),
        active: 1,
        number: None,
        only_behind_others: false,
    }
}
