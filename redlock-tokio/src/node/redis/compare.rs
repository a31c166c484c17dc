use deadpool_redis::redis::Value;

/// How a server changes a key only if the key has our token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compare {
    /// By Lua scripts. One call serves many keys. Every server has them.
    ByScript,
    /// By `SET key token IFEQ token`, and a command to delete.
    Natively(Native),
}

/// The command that deletes a key only if the key has our token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Native {
    /// `DELEX key IFEQ token`: Redis 8.4.
    Delex,
    /// `DELIFEQ key token`: Valkey 9.
    DelIfEq,
}

impl Compare {
    /// The commands that distinguish the servers, for `COMMAND INFO`.
    pub(super) const COMMANDS: [&str; 2] = ["DELEX", "DELIFEQ"];

    /// Reads the reply to `COMMAND INFO`: one item for each command, nil for an unknown one.
    pub(super) fn from_command_info(reply: &Value) -> Self {
        let knows = |item: &Value| !matches!(item, Value::Nil | Value::ServerError(_));
        match reply {
            Value::Array(items) if items.first().is_some_and(knows) => {
                Self::Natively(Native::Delex)
            }
            Value::Array(items) if items.get(1).is_some_and(knows) => {
                Self::Natively(Native::DelIfEq)
            }
            _ => Self::ByScript,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_info_shows_how_the_server_compares() {
        let known = || Value::Array(vec![Value::SimpleString("name".into())]);
        let said = |items| Compare::from_command_info(&Value::Array(items));
        assert_eq!(
            said(vec![known(), Value::Nil]),
            Compare::Natively(Native::Delex)
        );
        assert_eq!(
            said(vec![Value::Nil, known()]),
            Compare::Natively(Native::DelIfEq)
        );
        assert_eq!(said(vec![Value::Nil, Value::Nil]), Compare::ByScript);
        assert_eq!(Compare::from_command_info(&Value::Nil), Compare::ByScript);
    }
}
