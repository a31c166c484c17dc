use std::time::Duration;

use redlock_tokio::{NodeState, NodeStatus, Redlock};
use serde_json::json;

use crate::{
    args::{Connection, NodesArgs},
    exit::{Exit, Result},
    output::{Color, Output},
    run::SHUTDOWN,
};

pub(crate) async fn run(nodes: &Connection, args: &NodesArgs, output: &Output) -> Result<Exit> {
    let redlock = nodes.look().await?;
    loop {
        measure(&redlock, nodes.node_timeout).await;
        let status = redlock.nodes();
        let (votes, needed) = (votes(&status), status.len() / 2 + 1);
        show(&status, votes as i64 - needed as i64, output)?;
        let total = status.len();
        if let Some(outage) = outage(&status) {
            output.hint(outage);
        } else if votes == needed && total > 1 {
            output.hint(format_args!(
                "no reserve: {votes} of {total} nodes vote, and a lock needs {needed}: the next failure is an outage"
            ));
        }
        let Some(pause) = args.watch else {
            redlock.shutdown(SHUTDOWN).await;
            return Ok(if votes >= needed {
                Exit::Ok
            } else {
                Exit::Unavailable
            });
        };
        tokio::time::sleep(pause).await;
    }
}

/// Has each node answer a request, which takes and releases a lock that nobody else wants.
async fn measure(redlock: &Redlock, node_timeout: Duration) {
    let key = format!("redlock-nodes:{}", std::process::id());
    if let Ok(guard) = redlock.lock(key).wait(Duration::ZERO).await {
        guard.release().await;
    }
    // A majority has answered. The others do so in this time, or count as silent.
    tokio::time::sleep(node_timeout).await;
}

/// Says that there is an outage, if there is one.
pub(crate) fn outage(nodes: &[NodeStatus]) -> Option<String> {
    let (votes, total) = (votes(nodes), nodes.len());
    let needed = total / 2 + 1;
    let s = if votes == 1 { "s" } else { "" };
    (votes < needed)
        .then(|| format!("an outage: {votes} of {total} nodes vote{s}, and a lock needs {needed}"))
}

fn votes(nodes: &[NodeStatus]) -> usize {
    let voting = nodes.iter().filter(|it| it.state == NodeState::Voting);
    voting.count()
}

/// Shows each node. `reserve` is how many more may fail.
fn show(nodes: &[NodeStatus], reserve: i64, output: &Output) -> Result<()> {
    let width = nodes
        .iter()
        .map(|it| it.address.len())
        .max()
        .unwrap_or_default();
    for node in nodes {
        let (color, name) = match &node.state {
            NodeState::Voting => (Color::Green, "voting"),
            NodeState::Quarantined { .. } => (Color::Yellow, "quarantined"),
            NodeState::Unconfirmed => (Color::Yellow, "unconfirmed"),
            NodeState::Silent => (Color::Red, "silent"),
            NodeState::Reconnecting(_) => (Color::Red, "reconnecting"),
            NodeState::Refused(_) => (Color::Red, "refused"),
            _ => (Color::Red, "unknown"),
        };
        let version = node.server.as_ref().map(|it| it.version.as_str());
        let quarantine = match &node.state {
            NodeState::Quarantined { remaining } => Some(*remaining),
            _ => None,
        };
        let reason = match &node.state {
            NodeState::Voting => String::new(),
            state => format!("  {state}"),
        };
        let round_trip = node
            .round_trip
            .map(|it| format!("{:.2} ms", it.as_secs_f64() * 1e3));
        let owner = node.owner.as_deref();
        let owned = owner.map(|it| format!("  {it}")).unwrap_or_default();
        let state = output.paint(color, format_args!("{name:<12}"));
        let text = format!(
            "{:<width$}  {state}  {:<10}  {:>9}{owned}{reason}",
            node.address,
            version.unwrap_or("-"),
            round_trip.as_deref().unwrap_or("-"),
        );
        output.line(text.trim_end(), || {
            json!({
                "node": *node.address,
                "owner": owner,
                "state": name,
                "reason": (node.state != NodeState::Voting).then(|| node.state.to_string()),
                "version": version,
                "round_trip_seconds": node.round_trip.map(|it| it.as_secs_f64()),
                "reserve": reserve,
                "quarantine_seconds": quarantine.map(|it| it.as_secs_f64()),
            })
        })?;
    }
    Ok(())
}
