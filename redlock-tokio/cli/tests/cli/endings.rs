//! The command ends with its lock, however either ends.

use std::{
    fs, process, thread,
    time::{Duration, Instant},
};

use crate::process::{Bed, Pid, processes, wait_for};

/// A command that does not end when it is told to.
const DEFIES: &str = "trap '' TERM; echo $$ > pid; while :; do sleep 0.01; done";

/// The first thing that each command does is to kill the program, which is the parent of its parent.
#[test]
fn a_command_is_not_left_alone_at_whatever_moment_the_program_is_killed() {
    let bed = Bed::new();
    let tag = format!("the-test-{}", process::id());
    let script = format!(
        "read _ _ _ program _ < /proc/$PPID/stat; kill -KILL $program; \
        trap '' TERM; while :; do sleep 0.01; done; : {tag}"
    );
    let programs = (0..60).map(|number| {
        let options = format!("--ttl 10s --grace 100ms --prefix {number}:");
        bed.run(&options, &script).start()
    });
    // All at once, so that the processor is busy.
    for mut program in programs.collect::<Vec<_>>() {
        assert_eq!(program.status().code(), None);
    }
    wait_for("the end of all of them", || {
        let mut arguments = processes().map(Pid::arguments);
        (!arguments.any(|it| it.contains(&tag))).then_some(())
    });
}

#[test]
fn an_outage_ends_the_command_within_the_validity() {
    let bed = Bed::new();
    // A busy machine may be seconds late. A grace that began with the end of the validity would be later still.
    let (ttl, grace) = (Duration::from_secs(8), Duration::from_secs(4));
    let program = bed.run("--ttl 8s --grace 4s", DEFIES).start();
    let command = bed.pid("pid");
    bed.servers.get(0).freeze();
    bed.servers.get(1).freeze();
    let begin = Instant::now();
    let ended = command.wait_for_end() - begin;
    assert!(ended < ttl + grace / 2, "longer than the ttl: {ended:?}");
    assert!(ended > ttl / 2, "before it must: {ended:?}");
    bed.servers.get(0).thaw();
    bed.servers.get(1).thaw();
    program.ends(76);
}

#[test]
fn a_command_that_was_told_to_end_is_not_done_even_if_the_lock_comes_back() {
    let bed = Bed::new();
    let script = "trap 'echo > told; while ! [ -e back ]; do sleep 0.01; done; exit 0' TERM; \
        echo $$ > pid; while :; do sleep 0.01; done";
    let program = bed.run("--ttl 8s --grace 4s", script).start();
    bed.pid("pid");
    // The guardian tells it to end, and then the lock is renewed all the same.
    program.pid().signal("STOP");
    bed.trace("told");
    program.pid().signal("CONT");
    let is_renewed = |server: &usize| {
        let answer = bed.command_at(*server, "PTTL k");
        let remaining = answer.trim_start_matches(':').parse::<u64>();
        remaining.is_ok_and(|it| it > 4500)
    };
    wait_for("the renewal", || {
        let renewed = (0..3).filter(is_renewed).count();
        (renewed >= 2).then_some(())
    });
    fs::write(bed.path("back"), "").unwrap();
    program.ends(76).says("the lock was lost");
}

#[test]
fn a_leader_that_is_killed_is_replaced_and_never_works_beside_the_next() {
    let bed = Bed::new();
    let elect = |name: &str| {
        let script = format!("echo $$ > {name}; trap '' TERM; while :; do sleep 0.01; done");
        let elect = bed.redlock("elect leader --ttl 2s --grace 500ms -- sh -c");
        elect.arg(script).start()
    };
    let mut first = elect("first");
    let worker = bed.pid("first");
    let mut second = elect("second");
    thread::sleep(Duration::from_millis(300));
    assert!(!bed.path("second").exists(), "there is one leader");
    first.kill();
    let next = bed.pid("second");
    assert!(!worker.runs(), "it worked on beside the next one");
    // The leadership is taken away, and won again.
    bed.remove(["second"]);
    bed.redlock("unlock leader --yes").ends(0);
    assert!(bed.pid("second") != next && !next.runs());
    let guardian = second.pid().guardian();
    second.kill();
    guardian.wait_for_end();
}
