//! The command ends with its lock, however either ends.

use std::{
    fs,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use crate::process::{Bed, Pid, end_of, is_in_any_command, text, wait_for};

/// A command that ends when it is told to.
const OBEYS: &str = "echo $$ > pid; exec sleep 60";

/// A command that does not.
const DEFIES: &str = "trap '' TERM; echo $$ > pid; while :; do sleep 0.01; done";

#[test]
fn the_command_of_a_killed_program_ends_before_others_have_the_lock() {
    for script in [OBEYS, DEFIES] {
        let bed = Bed::new();
        let options = "--ttl 2s --grace 500ms";
        let mut program = bed.run(options, script).spawn().unwrap();
        let command = bed.pid("pid");
        let guardian = Pid::of(&program).children();
        program.kill().unwrap();
        program.wait().unwrap();
        let killed = Instant::now();
        // `date` is taken under the lock.
        bed.get_lock();
        assert!(!command.runs(), "it ran on beside the next one");
        let ended = killed.elapsed();
        assert!(ended < Duration::from_secs(10), "{ended:?}");
        guardian.iter().for_each(|it| _ = it.wait_for_end());
    }
}

/// The first thing that each command does is to kill the program, which is the parent of its parent.
#[test]
fn a_command_is_not_left_alone_at_whatever_moment_the_program_is_killed() {
    let bed = Bed::new();
    let tag = format!("the-test-{}", std::process::id());
    let script = format!(
        "read _ _ _ program _ < /proc/$PPID/stat; kill -KILL $program; \
        trap '' TERM; while :; do sleep 0.01; done; : {tag}"
    );
    let programs = (0..60).map(|number| {
        let options = format!("--ttl 10s --grace 100ms --prefix {number}:");
        bed.run(&options, &script).spawn().unwrap()
    });
    // All at once, so that the processor is busy.
    for mut program in programs.collect::<Vec<_>>() {
        assert_eq!(program.wait().unwrap().code(), None);
    }
    let is_over = || (!is_in_any_command(&tag)).then_some(());
    wait_for("the end of all of them", is_over);
}

#[test]
fn the_command_of_a_stopped_program_ends_before_others_have_the_lock() {
    let bed = Bed::new();
    let mut program = bed.run("--ttl 2s --grace 500ms", DEFIES).spawn().unwrap();
    let command = bed.pid("pid");
    Pid::of(&program).signal("STOP");
    bed.get_lock();
    assert!(!command.runs(), "it ran on beside the next one");
    Pid::of(&program).signal("CONT");
    assert_eq!(program.wait().unwrap().code(), Some(76));
}

#[test]
fn a_killed_command_frees_the_lock_at_once() {
    let bed = Bed::new();
    let mut program = bed.run("", OBEYS).spawn().unwrap();
    bed.pid("pid").signal("KILL");
    assert_eq!(program.wait().unwrap().code(), Some(137));
    assert_eq!(bed.code_of("run -n k -- true"), 0);
}

#[test]
fn an_outage_ends_the_command_within_the_validity() {
    let bed = Bed::new();
    // A busy machine may be seconds late. A grace that began with the end of the validity would be later still.
    let (ttl, grace) = (Duration::from_secs(8), Duration::from_secs(4));
    let mut program = bed.run("--ttl 8s --grace 4s", DEFIES).spawn().unwrap();
    let command = bed.pid("pid");
    bed.servers.get(0).freeze();
    bed.servers.get(1).freeze();
    let begin = Instant::now();
    let ended = command.wait_for_end() - begin;
    assert!(ended < ttl + grace / 2, "longer than the ttl: {ended:?}");
    assert!(ended > ttl / 2, "before it must: {ended:?}");
    bed.servers.get(0).thaw();
    bed.servers.get(1).thaw();
    assert_eq!(program.wait().unwrap().code(), Some(76));
}

#[test]
fn a_command_that_was_told_to_end_is_not_done_even_if_the_lock_comes_back() {
    let bed = Bed::new();
    let script = "trap 'echo > told; while ! [ -e back ]; do sleep 0.01; done; exit 0' TERM; \
        echo $$ > pid; while :; do sleep 0.01; done";
    let mut program = bed.run("--ttl 8s --grace 4s", script);
    let mut program = program.stderr(Stdio::piped()).spawn().unwrap();
    bed.pid("pid");
    // The guardian tells it to end, and then the lock is renewed all the same.
    Pid::of(&program).signal("STOP");
    bed.trace("told");
    Pid::of(&program).signal("CONT");
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
    assert_eq!(end_of(&mut program), Some(76));
    let output = program.wait_with_output().unwrap();
    let shown = text(&output.stderr);
    assert!(shown.contains("the lock was lost"), "{shown}");
}

#[test]
fn a_node_that_fails_ends_nothing() {
    let bed = Bed::new();
    bed.servers.get(2).kill();
    let mut program = bed.run("--ttl 4s --grace 1s", "sleep 9; exit 5");
    assert_eq!(program.status().unwrap().code(), Some(5));
}

#[test]
fn a_leader_that_is_killed_is_replaced_and_never_works_beside_the_next() {
    let bed = Bed::new();
    let elect = |name: &str| {
        let mut command = bed.redlock("elect leader --ttl 2s --grace 500ms -- sh -c");
        let folder = bed.path(".");
        let script = format!("echo $$ > {name}; trap '' TERM; while :; do sleep 0.01; done");
        command.arg(script).current_dir(folder).spawn().unwrap()
    };
    let mut first = elect("first");
    let worker = bed.pid("first");
    let mut second = elect("second");
    thread::sleep(Duration::from_millis(300));
    assert!(!bed.path("second").exists(), "there is one leader");
    first.kill().unwrap();
    first.wait().unwrap();
    let next = bed.pid("second");
    assert!(!worker.runs(), "it worked on beside the next one");
    // The leadership is taken away, and won again.
    fs::remove_file(bed.path("second")).unwrap();
    assert_eq!(bed.code_of("unlock leader --yes"), 0);
    assert!(bed.pid("second") != next && !next.runs());
    let holder = Pid::of(&second);
    let children = holder.children();
    second.kill().unwrap();
    second.wait().unwrap();
    children.iter().for_each(|it| _ = it.wait_for_end());
}
