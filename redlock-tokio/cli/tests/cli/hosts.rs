//! Jobs that one host of several is to run.

use crate::process::{Bed, wait_for};

#[test]
fn a_host_that_comes_after_a_short_job_does_not_run_it_again() {
    let bed = Bed::new();
    for (script, code) in [("echo ran >> ran", 0), ("echo ran >> ran; exit 3", 3)] {
        let options = format!("--prefix {code}: -w 100ms --keep-for 9s");
        bed.run(&options, script).ends(code);
        let second = bed.run(&options, script).ends(75);
        second.says("is taken: held by");
        assert_eq!(bed.trace("ran"), "ran\n");
        bed.remove(["ran"]);
    }
}

#[test]
fn a_job_that_was_not_begun_is_left_to_others() {
    let bed = Bed::new();
    let job = bed.redlock("run --keep-for 9s k -- /no/such/command");
    job.ends(127);
    bed.run("-n", "true").ends(0);
    // No node would remember it for so long.
    let refused = bed.run("--keep-for 60s", "echo > ran").ends(64);
    refused.says("needs a --max-ttl of 60.6");
    assert!(!bed.path("ran").exists());
    bed.run("--keep-for 60s --max-ttl 61s", "true").ends(0);
}

#[test]
fn a_writer_that_waits_is_shown_and_keeps_new_readers_out() {
    let bed = Bed::new();
    let reader = bed.holder("--shared");
    bed.run("--shared -n", "true").ends(0);
    let writer = bed.run("--writer", "true").start();
    wait_for("the mark of the writer", || {
        let seen = bed.redlock("inspect k --json").ends(0);
        (seen.value()["waiting_writer"] == true).then_some(())
    });
    bed.run("--shared -n", "true").ends(75);
    reader.pid().signal("TERM");
    reader.ends(143);
    writer.ends(0);
}
