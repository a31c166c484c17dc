use std::{ffi::OsString, os::unix::ffi::OsStrExt, time::Duration};

use redlock_tokio::{
    Holder, Inspection, LockError, Redlock, Verdict, errors::KeyError, node::Occupant,
};
use serde_json::{Value, json};

use crate::{
    args::{Connection, InspectArgs},
    exit::{Exit, Failure, Result},
    output::{Color, Output, shown},
};

pub(crate) async fn run(nodes: &Connection, args: &InspectArgs, output: &Output) -> Result<Exit> {
    let redlock = nodes.look().await?;
    let inspection = redlock.inspect(args.key.as_bytes()).await?;
    show(&inspection, nodes, output)?;
    Ok(exit_of(&inspection))
}

/// Fails if the nodes do not tell.
pub(crate) fn exit_of(inspection: &Inspection) -> Exit {
    match inspection.verdict() {
        Verdict::Unknown => Exit::Unavailable,
        _ => Exit::Ok,
    }
}

pub(crate) fn show(inspection: &Inspection, nodes: &Connection, output: &Output) -> Result<()> {
    let text = inspection.to_string();
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let verdict = inspection.verdict();
    let first = output.paint(color_of(&verdict), first);
    output.line(format_args!("{first}\n{rest}"), || value_of(inspection))?;
    if matches!(verdict, Verdict::Free) {
        if nodes.prefix.is_empty() {
            output.hint("if the services use a prefix, their lock has another key: set --prefix");
        } else if inspection
            .key()
            .as_bytes()
            .starts_with(nodes.prefix.repeat(2).as_bytes())
        {
            output.hint("the prefix is put in front of KEY: write the key without it");
        }
        if inspection
            .nodes()
            .iter()
            .any(|it| it.address.starts_with("slot "))
        {
            output.hint("if the services have other voters or tags of the cluster, their lock has other keys");
        }
    }
    Ok(())
}

/// Returns why there is no lock, and who has it. A request that may not wait has not looked.
pub(crate) async fn failure(redlock: &Redlock, keys: &[OsString], error: LockError) -> Failure {
    let LockError::Contended(attempts) = &error else {
        return error.into();
    };
    let Some(inspection) = taken(redlock, keys).await else {
        return error.into();
    };
    let key = shown(inspection.key().as_bytes());
    let message = match (permits(&inspection), inspection.verdict()) {
        (Some(permits), _) => format!("{key} is taken: {permits} ({attempts})"),
        (None, Verdict::Free) => format!("{key} was taken, and is free now ({attempts})"),
        (None, verdict) => format!("{key} is taken: {verdict} ({attempts})"),
    };
    Failure {
        seen: value_of(&inspection),
        ..Failure::new(Exit::Contended, message)
    }
}

/// How many of the keys of one request are looked at, to find the one that it waits for. Each costs the servers some time.
const LOOKED_AT: usize = 8;

/// Returns the first of the keys that is not free, or else the last one.
pub(crate) async fn taken(redlock: &Redlock, keys: &[OsString]) -> Option<Inspection> {
    let mut last = None;
    for key in keys.iter().take(LOOKED_AT) {
        let inspection = redlock.inspect(key.as_bytes()).await.ok()?;
        let is_free = inspection.verdict() == Verdict::Free;
        last = Some(inspection);
        if !is_free {
            break;
        }
    }
    last
}

/// Returns the names as people read them.
pub(crate) fn names(keys: &[OsString]) -> String {
    let names: Vec<_> = keys.iter().map(|it| shown(it.as_bytes())).collect();
    names.join(", ")
}

/// Says who has the permits, if there are any.
pub(crate) fn permits(inspection: &Inspection) -> Option<String> {
    let permits = inspection.permits().into_iter();
    let permits: Vec<_> = permits
        .map(|(slot, verdict)| format!("permit #{slot} {verdict}"))
        .collect();
    (!permits.is_empty()).then(|| permits.join(", "))
}

pub(crate) const fn color_of(verdict: &Verdict) -> Color {
    match verdict {
        Verdict::Free => Color::Green,
        Verdict::Held { .. } | Verdict::Shared { .. } | Verdict::Permits { .. } => Color::Yellow,
        _ => Color::Red,
    }
}

/// Returns an inspection for scripts.
pub(crate) fn value_of(inspection: &Inspection) -> Value {
    let mut value = value_of_verdict(&inspection.verdict());
    let permits = inspection.permits().into_iter();
    let permits = permits.map(|(slot, verdict)| {
        let mut value = value_of_verdict(&verdict);
        value["slot"] = json!(slot);
        value
    });
    let nodes = inspection.nodes().iter().map(|node| {
        let state = node.state.as_ref().cloned().unwrap_or_default();
        let lock = state.lock.as_ref();
        let permits = state.permits.iter().map(|(slot, it)| {
            let mut value = value_of_occupant(it);
            value["slot"] = json!(slot);
            value
        });
        json!({
            "node": *node.address,
            "holder": lock.and_then(|it| it.holder.as_ref()).map(value_of_holder),
            "remaining_seconds": lock.and_then(|it| it.remaining).map(|it| it.as_secs_f64()),
            "readers": state.readers.iter().map(value_of_occupant).collect::<Value>(),
            "permits": permits.collect::<Value>(),
            "error": node.state.as_ref().err().map(ToString::to_string),
            "no_vote": node.objection.as_ref().map(ToString::to_string),
        })
    });
    let key = inspection.key().as_bytes();
    value["key"] = json!(str::from_utf8(key).ok());
    value["key_hex"] = json!(hex::encode(key));
    value["permits"] = permits.collect();
    value["waiting"] = inspection
        .waiting()
        .iter()
        .map(|it| json!(it.as_deref()))
        .collect();
    value["waiting_writer"] = json!(inspection.has_waiting_writer());
    value["nodes"] = nodes.collect();
    value
}

fn value_of_verdict(verdict: &Verdict) -> Value {
    let with_time = |(holder, remaining): &(Holder, Duration)| {
        value_of_occupant(&Occupant::new(Some(holder.clone()), Some(*remaining)))
    };
    let (name, holders) = match verdict {
        Verdict::Free => ("free", vec![]),
        Verdict::Held { by, remaining } => ("held", vec![with_time(&(by.clone(), *remaining))]),
        Verdict::Shared { readers } => ("shared", readers.iter().map(with_time).collect()),
        Verdict::Split => ("split", vec![]),
        Verdict::Permits { .. } => ("permits", vec![]),
        Verdict::Unknown => ("unknown", vec![]),
        _ => ("not_a_lock", vec![]),
    };
    json!({"state": name, "holders": holders})
}

/// Returns something that a client has, with the time left. Something that is no lock lacks either.
fn value_of_occupant(occupant: &Occupant) -> Value {
    let holder = occupant.holder.as_ref();
    let mut value = holder.map_or_else(|| json!({}), value_of_holder);
    value["remaining_seconds"] = json!(occupant.remaining.map(|it| it.as_secs_f64()));
    value
}

fn value_of_holder(holder: &Holder) -> Value {
    json!({
        "client_name": holder.client_name(),
        "token": holder.token().map(|it| it.to_string()),
        "value": str::from_utf8(holder.value()).ok(),
        "value_hex": hex::encode(holder.value()),
    })
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        Self::usage(error)
    }
}
