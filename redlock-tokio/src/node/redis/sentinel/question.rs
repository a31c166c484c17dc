//! The question to a sentinel, and its answer.

use std::{collections::HashMap, time::Duration};

use deadpool_redis::redis::{Pipeline, ServerError, Value};
use redlock_core::{MemberId, Owner, Tenure};

use crate::node::{
    NodeError,
    redis::{
        address::Endpoint,
        server_error::{is_denied_command, refusal},
        survey::{Place, View, member_id},
    },
};

/// How many other sentinels an answer may name. Groups have a handful. Each that is named counts as a member and is
/// asked, so a wrong answer with thousands would take the vote and open thousands of connections.
const MOST_OTHERS: usize = 100;

type Fields = HashMap<String, String>;

pub(super) fn question(group: &str) -> Pipeline {
    let mut pipeline = Pipeline::new();
    pipeline.cmd("SENTINEL").arg("MYID");
    pipeline.cmd("SENTINEL").arg("MASTER").arg(group);
    pipeline.cmd("SENTINEL").arg("SENTINELS").arg(group);
    pipeline
}

/// Reads the replies to the question.
///
/// # Errors
///
/// Says what must be changed, if the sentinel refuses to answer.
pub(super) fn read(group: &str, replies: Vec<Value>) -> Result<View, NodeError> {
    let count = replies.len();
    let Ok([id, master, others]) = <[Value; 3]>::try_from(replies) else {
        let text = format!("{count} replies to three questions");
        return Err(NodeError::Unexpected(text.into()));
    };
    for reply in [&master, &others] {
        if let Value::ServerError(error) = reply {
            return Err(explain(group, error));
        }
    }
    let myself = text(&id).and_then(|id| member_id(&id)).ok_or_else(|| {
        let text = "it does not report its id: grant +sentinel|myid, or use Redis 6.2 or later";
        NodeError::Misconfigured(text.into())
    })?;
    let master = fields(&master).unwrap_or_default();
    let others = match others {
        Value::Array(others) | Value::Set(others) => others,
        _ => Vec::new(),
    };
    if others.len() > MOST_OTHERS {
        let count = others.len();
        let text = format!("it names {count} other sentinels, more than {MOST_OTHERS}");
        return Err(NodeError::Unexpected(text.into()));
    }
    Ok(View {
        myself,
        members: others.iter().filter_map(other).collect(),
        tenures: vec![tenure(&master)],
        age: age(&master).unwrap_or_default(),
    })
}

/// Says what must be changed, in words.
fn explain(group: &str, error: &ServerError) -> NodeError {
    let details = error.details().unwrap_or_default();
    let text = if error.code() == "NOAUTH" {
        "it asks for a password: set sentinel_password".into()
    } else if details.starts_with("No such master") {
        format!("it knows no group `{group}`; `SENTINEL MASTERS` lists those that it knows")
    } else if error.code() == "NOPERM" {
        "this client may not ask it: grant +sentinel|myid +sentinel|master +sentinel|sentinels"
            .into()
    } else if is_denied_command(error) {
        "it is a server, not a sentinel: give the port of the sentinel, 26379 by default".into()
    } else {
        return refusal(error);
    };
    NodeError::Misconfigured(text.into())
}

fn tenure(master: &Fields) -> Option<Tenure> {
    let address = address(master)?;
    let epoch = master.get("config-epoch")?.parse().ok()?;
    let owner = Owner::new(address.to_string());
    Some(Tenure { owner, epoch })
}

/// Returns the time since the sentinel saw the switch to this master. Zero after a restart of the sentinel.
fn age(master: &Fields) -> Option<Duration> {
    let is_master = master.get("role-reported")? == "master";
    let millis = master.get("role-reported-time")?.parse().ok()?;
    is_master.then(|| Duration::from_millis(millis))
}

/// Reads another sentinel that this one knows. It counts as one of all even if nobody can ask it.
fn other(reply: &Value) -> Option<(MemberId, Option<Place>)> {
    let fields = fields(reply)?;
    let id = member_id(fields.get("runid")?)?;
    Some((id, address(&fields).map(Place::Announced)))
}

/// Returns the address in a sentinel's answer.
fn address(fields: &Fields) -> Option<Endpoint> {
    let port = fields.get("port")?.parse().ok()?;
    Endpoint::tcp(fields.get("ip")?, port).ok()
}

/// Reads names and values: a map in RESP3, and a list in RESP2.
fn fields(reply: &Value) -> Option<Fields> {
    let pair = |name: &Value, value: &Value| Some((text(name)?, text(value)?));
    match reply {
        Value::Map(pairs) => Some(pairs.iter().filter_map(|(a, b)| pair(a, b)).collect()),
        Value::Array(list) => Some(
            list.chunks_exact(2)
                .filter_map(|entry| pair(&entry[0], &entry[1]))
                .collect(),
        ),
        _ => None,
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(text) => String::from_utf8(text.clone()).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.clone()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use deadpool_redis::redis::parse_redis_value;

    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef01234567";

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn list(fields: &[(&str, &str)]) -> Value {
        let flat = fields.iter().flat_map(|(name, value)| [*name, *value]);
        Value::Array(flat.map(bulk).collect())
    }

    fn map(fields: &[(&str, &str)]) -> Value {
        let pairs = fields.iter().map(|(name, value)| (bulk(name), bulk(value)));
        Value::Map(pairs.collect())
    }

    fn error(line: &str) -> Value {
        parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap()
    }

    const MASTER: &[(&str, &str)] = &[
        ("name", "group"),
        ("ip", "10.0.0.1"),
        ("port", "6379"),
        ("role-reported", "master"),
        ("role-reported-time", "5000"),
        ("config-epoch", "7"),
    ];

    #[test]
    fn an_answer_is_read_in_both_versions_of_the_protocol() {
        let other = [("ip", "fe80::1"), ("port", "26379"), ("runid", ID)];
        let address = Endpoint::tcp("fe80::1", 26379).unwrap();
        let expected = View {
            myself: member_id(ID).unwrap(),
            members: [(member_id(ID).unwrap(), Some(Place::Announced(address)))].into(),
            tenures: vec![Some(Tenure {
                owner: Owner::new("10.0.0.1:6379"),
                epoch: 7,
            })],
            age: Duration::from_secs(5),
        };
        for fields in [list, map] {
            let others = Value::Array(vec![fields(&other)]);
            let replies = vec![bulk(ID), fields(MASTER), others];
            assert_eq!(read("group", replies), Ok(expected.clone()));
        }
    }

    #[test]
    fn only_a_server_that_reports_to_be_a_master_has_an_age() {
        let mut demoted = MASTER.to_vec();
        demoted[3].1 = "slave";
        let replies = vec![bulk(ID), list(&demoted), Value::Array(vec![])];
        assert_eq!(read("group", replies).unwrap().age, Duration::ZERO);
    }

    #[test]
    fn a_sentinel_with_odd_fields_names_what_it_can() {
        let odd = [("ip", ""), ("port", "99999999"), ("config-epoch", "x")];
        let others = Value::Array(vec![Value::Nil, list(&odd), list(&[("runid", "short")])]);
        let answer = read("group", vec![bulk(ID), list(&odd), others]).unwrap();
        let nothing = View {
            myself: member_id(ID).unwrap(),
            members: [].into(),
            tenures: vec![None],
            age: Duration::ZERO,
        };
        assert_eq!(answer, nothing);
    }

    #[test]
    fn a_sentinel_without_an_address_counts_as_one_of_all() {
        for host in ["", "a\nb", "a@b"] {
            let other = list(&[("ip", host), ("port", "26379"), ("runid", ID)]);
            let replies = vec![bulk(ID), list(MASTER), Value::Array(vec![other])];
            let answer = read("group", replies).unwrap();
            let expected = (member_id(ID).unwrap(), None);
            assert_eq!(answer.members, [expected].into(), "{host:?}");
        }
    }

    #[test]
    fn too_few_replies_are_an_error() {
        assert!(read("group", vec![]).is_err());
    }

    #[test]
    fn an_answer_that_names_very_many_sentinels_is_not_believed() {
        let answer = |count| {
            let other = [("ip", "a"), ("port", "1"), ("runid", ID)];
            let others = vec![list(&other); count];
            read("group", vec![bulk(ID), list(MASTER), Value::Array(others)])
        };
        assert!(answer(MOST_OTHERS).is_ok());
        let error = answer(MOST_OTHERS + 1).unwrap_err().to_string();
        assert!(error.contains("names 101 other sentinels"), "{error}");
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        for (line, words) in [
            ("NOAUTH Authentication required.", "sentinel_password"),
            ("ERR No such master with that name", "no group `group`"),
            ("NOPERM User x has no permissions", "+sentinel|master"),
            (
                "ERR unknown command 'SENTINEL', with args",
                "not a sentinel",
            ),
        ] {
            let refusal = read("group", vec![error(line), error(line), error(line)]).unwrap_err();
            assert!(refusal.is_refusal(), "{refusal}");
            assert!(refusal.to_string().contains(words), "{refusal}");
        }
        let unknown = error("ERR Unknown sentinel subcommand 'MYID'");
        for id in [unknown, Value::Nil, bulk("short")] {
            let refusal = read("group", vec![id, list(MASTER), Value::Array(vec![])]).unwrap_err();
            assert!(refusal.is_refusal(), "{refusal}");
            assert!(refusal.to_string().contains("+sentinel|myid"), "{refusal}");
        }
        let busy = vec![bulk(ID), error("BUSY script"), Value::Nil];
        assert!(!read("group", busy).unwrap_err().is_refusal());
    }
}
