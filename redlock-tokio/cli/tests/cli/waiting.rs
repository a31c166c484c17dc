//! The log of a job says why it waits.

use crate::process::Bed;

#[test]
fn a_wait_without_a_terminal_says_who_has_the_lock_and_when_an_outage_begins() {
    let bed = Bed::new();
    let holder = bed.holder("--client-name job-1");
    let waiting = bed.run("", "echo > done").start();
    let log = waiting.says(": held by job-1 for another ");
    assert_eq!(log.lines().count(), 1, "once: {log}");
    for server in [0, 1] {
        bed.servers.get(server).kill();
    }
    let log = waiting.says("an outage: 1 of 3 nodes votes, and a lock needs 2");
    let down = bed.servers.get(0).address().to_string();
    assert!(log.contains(&down), "{log}");
    holder.ends(76);
    assert!(!bed.path("done").exists());
    for server in [0, 1] {
        bed.servers.get(server).restart().unwrap();
    }
    let log = waiting.ends(0).err;
    assert_eq!(log.matches("an outage").count(), 1, "{log}");
}

#[test]
fn a_wait_for_nodes_without_a_vote_says_so_unless_it_is_quiet() {
    let bed = Bed::new();
    let run = |options: &str| {
        let options = format!("--durability volatile --max-ttl 4s {options}");
        bed.run(&options, "true")
    };
    let ended = run("--no-wait").ends(69);
    ended.says("--wait").says_nothing_of("Redlock::");
    let first = bed.servers.get(0).address().to_string();
    let ended = run("").ends(0).says("an outage: 0 of 3 nodes vote");
    ended.says(&first);
    for server in bed.servers.iter() {
        server.restart().unwrap();
    }
    assert_eq!(run("--quiet").ends(0).err, "");
}
