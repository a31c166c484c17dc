//! The log of a job says why it waits.

use std::{
    fs::{self, File},
    process::Child,
};

use crate::process::{Bed, text, wait_for};

/// A job that waits, with its output in a file.
struct Waiting<'a> {
    bed: &'a Bed,
    job: Child,
}

impl<'a> Waiting<'a> {
    fn start(bed: &'a Bed, options: &str) -> Self {
        let log = File::create(bed.path("log")).unwrap();
        let job = bed.run(options, "echo > done").stderr(log).spawn();
        let job = job.unwrap();
        Self { bed, job }
    }

    /// Waits for a line with this text, and returns the whole log.
    fn says(&self, expected: &str) -> String {
        wait_for(expected, || {
            let log = fs::read_to_string(self.bed.path("log")).unwrap();
            log.lines().any(|it| it.contains(expected)).then_some(log)
        })
    }
}

#[test]
fn a_wait_without_a_terminal_says_who_has_the_lock_and_when_an_outage_begins() {
    let bed = Bed::new();
    let mut holder = bed.holder("--client-name job-1");
    let mut waiting = Waiting::start(&bed, "");
    let log = waiting.says(": held by job-1 for another ");
    assert_eq!(log.lines().count(), 1, "once: {log}");
    let urls = bed.servers.urls();
    bed.servers.get(0).kill();
    bed.servers.get(1).kill();
    let log = waiting.says("an outage: 1 of 3 nodes votes, and a lock needs 2");
    let down = urls[0].trim_start_matches("redis://");
    assert!(log.contains(down), "{log}");
    assert_eq!(holder.wait().unwrap().code(), Some(76));
    assert!(!bed.path("done").exists());
    bed.servers.get(0).restart().unwrap();
    bed.servers.get(1).restart().unwrap();
    assert_eq!(waiting.job.wait().unwrap().code(), Some(0));
    let log = fs::read_to_string(bed.path("log")).unwrap();
    assert_eq!(log.matches("an outage").count(), 1, "{log}");
}

#[test]
fn a_wait_for_nodes_without_a_vote_says_so_unless_it_is_quiet() {
    let bed = Bed::new();
    let log = |options: &str| {
        let options = format!("--durability volatile --max-ttl 4s {options}");
        let output = bed.run(&options, "true").output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let (code, shown) = log("--no-wait");
    assert_eq!(code, Some(69), "{shown}");
    assert!(
        shown.contains("--wait") && !shown.contains("Redlock::"),
        "{shown}"
    );
    let (code, shown) = log("");
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("an outage: 0 of 3 nodes vote"), "{shown}");
    let first = bed.servers.urls()[0].replace("redis://", "");
    assert!(shown.contains(&first), "{shown}");
    for index in 0..3 {
        bed.servers.get(index).kill();
        bed.servers.get(index).restart().unwrap();
    }
    assert_eq!(log("--quiet"), (Some(0), String::new()));
}
