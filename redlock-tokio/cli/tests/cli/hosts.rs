//! Jobs that one host of several is to run.

use crate::process::{Bed, wait_for};

#[test]
fn a_host_that_comes_after_a_short_job_does_not_run_it_again() {
    let bed = Bed::new();
    let guardian = "kill -KILL $PPID; sleep 60";
    let program =
        |signal| format!("read _ _ _ it _ < /proc/$PPID/stat; kill -{signal} $it; sleep 60");
    for (end, code) in [
        ("true", 0),
        ("exit 3", 3),
        ("/no/such/command", 127),
        ("exit 126", 126),
        ("kill -KILL $$", 137),
        ("kill -SEGV $$", 139),
        ("kill -TERM $$", 143),
        (&program("HUP"), 129),
        (&program("TERM"), 143),
        (guardian, 76),
    ] {
        let script = format!("echo ran >> ran; {end}");
        let run = || {
            bed.run("-w 100ms --keep-for 9s", &script)
                .env("REDLOCK_PREFIX", end)
        };
        run().ends(code);
        run().ends(75).says("is taken: held by");
        assert_eq!(bed.trace("ran"), "ran\n", "{end}");
        bed.remove(["ran"]);
    }
}

#[test]
fn a_job_that_was_not_begun_is_left_to_others() {
    let bed = Bed::new();
    let job = bed.redlock("run --keep-for 9s k -- /no/such/command");
    job.by(&["env", "--ignore-signal=PIPE"]).ends(127);
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
