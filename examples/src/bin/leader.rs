//! A fleet of which one process at a time, the leader, sends reports.
//!
//! ```sh
//! cargo build -p redlock-examples --features leader
//! examples/five-nodes sh -c 'target/debug/leader & target/debug/leader & target/debug/leader & wait'
//! ```
//!
//! Kill the leader (`kill -9`), or stop it for a while (`kill -STOP`, later `kill -CONT`): another candidate leads after at
//! most a ttl. The one that was stopped sends no report when it goes on, and campaigns again.

use std::{process, time::Duration};

use anyhow::Result;
use clap::Parser;
use redlock_tokio::{Candidacy, Candidate, Verdict};
use tokio::{pin, time::sleep};

/// Sends reports while this process is the leader.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// How long the others wait for a leader that died.
    #[arg(long, default_value = "2s", value_parser = redlock_examples::duration)]
    ttl: Duration,
    /// How often the leader sends a report.
    #[arg(long, default_value = "500ms", value_parser = redlock_examples::duration)]
    every: Duration,
    /// After how many reports of its own the leader resigns, and the program ends. Without it, the program runs until
    /// Ctrl-C.
    #[arg(long)]
    reports: Option<u32>,
}

#[tokio::main]
async fn main() -> Result<()> {
    redlock_examples::init_logging();
    let options = Options::parse();
    let stop = redlock_examples::asked_to_stop()?;
    let (redlock, nodes) = redlock_examples::connect().await?;
    println!("redlock leader, on {nodes}");

    let election = redlock.elect("reports").ttl(options.ttl);
    let changes = tokio::spawn(print_changes(election.candidate()));
    {
        let leading = election.run(async |_leadership| {
            // Begun anew by each leadership, and dropped at an `await` when the leadership ends.
            say("leads");
            for number in 1.. {
                say(&format!("report {number}"));
                if options.reports == Some(number) {
                    return;
                }
                sleep(options.every).await;
            }
        });
        pin!(leading);
        tokio::select! {
            result = &mut leading => result?,
            () = stop => {}
        }
    } // Dropping the future resigns.
    changes.await?;
    redlock.shutdown(None).await;
    Ok(())
}

/// Prints what this process is, until it is no candidate any more.
async fn print_changes(mut candidate: Candidate) {
    say(&match candidate.leader().await {
        Ok(Verdict::Held { by, .. }) => format!("campaigns, and {by} leads"),
        _ => "campaigns".to_owned(),
    });
    loop {
        match candidate.changed().await {
            // Its work says so. One that is short may be over when this is seen.
            Candidacy::Leading => {}
            Candidacy::Ended => return say("ends"),
            _ => say("leads no more"),
        }
    }
}

fn say(text: &str) {
    println!("{}: {text}", process::id());
}
