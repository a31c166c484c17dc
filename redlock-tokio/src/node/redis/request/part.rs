use deadpool_redis::redis::Value;
use smallvec::SmallVec;

use crate::node::redis::{
    script::{Call, Script},
    server_error::{concerns_server, is_denied_key},
};

pub(super) struct Part {
    pub(super) ask: Ask,
    pub(super) positions: Positions,
}

/// The positions in the batch of the commands that a part is for.
pub(super) type Positions = SmallVec<[usize; 1]>;

/// A way to ask a server for what one or several commands of a batch want.
#[derive(Clone, Copy)]
pub(super) enum Ask {
    /// `SET .. NX`.
    Set,
    Script(&'static Script, Call),
    /// `CLIENT CACHING YES`, `MGET` of slots to be tracked, or the mark of a writer. The reply is ignored.
    Ignored,
    /// `MGET` of keys to be tracked that were just extended. One that has another value by now is denied.
    Extended,
    /// `MGET` of keys that are probed, for their holders.
    Holders,
    /// `PTTL`, of a key whose holder was asked for.
    TimeLeft,
    /// `PTTL`, of a key that anybody may hold.
    Probe,
    /// `MGET`, of a key that a reader looks at.
    Value,
    /// `PTTL`, of the mark of a writer.
    Mark,
}

impl Part {
    /// Returns how to ask again for each command on its own, because of the reply; `None` if the reply is an answer.
    pub(super) fn again(&self, reply: &Value) -> Option<Ask> {
        let Value::ServerError(error) = reply else {
            return None;
        };
        // One key among them may be the cause.
        let is_one_of_many = self.positions.len() > 1 && !concerns_server(error);
        match self.ask {
            Ask::Holders if is_one_of_many => Some(Ask::Holders),
            // Somebody flushed the scripts, or they could not be loaded.
            Ask::Script(script, by)
                if is_one_of_many
                    || error.code() == "NOSCRIPT" && script.by(by) == Call::ByHash =>
            {
                Some(Ask::Script(script, Call::InFull))
            }
            // Without a right to the names beside the key, a token is still deleted as that of a plain lock.
            Ask::Script(script, by) if is_denied_key(error) => {
                script.plain.map(|plain| Ask::Script(plain, by))
            }
            _ => None,
        }
    }
}
