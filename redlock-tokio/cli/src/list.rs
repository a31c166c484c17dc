use redlock_tokio::{InspectedNode, Inspection, Verdict};
use serde_json::json;

use crate::{
    args::Connection,
    exit::{Exit, Failure, Result},
    inspect,
    output::{Output, shown},
    run::SHUTDOWN,
};

/// Lists the locks that are held. Only those of one step are in memory.
pub(crate) async fn run(nodes: &Connection, output: &Output) -> Result<Exit> {
    let redlock = nodes.look().await?;
    let total = redlock.nodes().len();
    let mut search = redlock.search();
    let (mut listed, mut failed, mut lacks_right) = (0_u64, 0, false);
    while let Some(address) = search.node() {
        output.progress(format_args!("searching {address}: {listed} locks so far"));
        let Some(step) = search.next().await else {
            break;
        };
        output.progress("");
        match step {
            Ok(found) => {
                for held in found.iter().filter(|it| it.verdict() != Verdict::Free) {
                    show(held, output)?;
                    listed += 1;
                }
            }
            Err(report) => {
                failed += 1;
                let (address, reason) = (report.address, report.objection.to_string());
                lacks_right |= reason.starts_with("NOPERM");
                output.hint(format_args!("{address} was not searched: {reason}"));
            }
        }
    }
    if nodes.prefix.is_empty() {
        output.hint("without --prefix, each string that expires looks like a lock");
    }
    redlock.shutdown(SHUTDOWN).await;
    if listed == 0 && failed <= total / 2 {
        output.hint("nothing is held");
    }
    if failed > total / 2 {
        let advice = if lacks_right {
            "give the user of the nodes the right to SCAN"
        } else {
            "see `redlock nodes`"
        };
        return Err(Failure::new(
            Exit::Unavailable,
            format_args!(
                "locks may be missing: {failed} of {total} nodes were not searched: {advice}"
            ),
        ));
    }
    Ok(Exit::Ok)
}

fn show(inspection: &Inspection, output: &Output) -> Result<()> {
    let all = inspection.nodes();
    let (has, total) = (all.iter().filter(|it| has_it(it)).count(), all.len());
    let key = shown(inspection.key().as_bytes());
    let verdict = inspection.verdict();
    let what = inspect::permits(inspection).unwrap_or_else(|| verdict.to_string());
    let what = output.paint(inspect::color_of(&verdict), what);
    output.line(
        format_args!("{key}: {what}, on {has} of {total} nodes"),
        || {
            let mut value = inspect::value_of(inspection);
            value["on_nodes"] = json!(has);
            value
        },
    )
}

fn has_it(node: &InspectedNode) -> bool {
    let has = |it: &redlock_tokio::node::KeyState| {
        it.lock.is_some() || !it.readers.is_empty() || !it.permits.is_empty()
    };
    node.state.as_ref().is_ok_and(has)
}
