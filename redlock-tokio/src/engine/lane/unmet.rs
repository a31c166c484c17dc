//! Unmet checks in words.

use redlock_core::{Check, Checks};

/// Returns the fields of `INFO` that are missing.
pub(super) fn fields(unmet: Checks) -> String {
    listed(unmet, |check| match check {
        Check::Server => "run_id and master_replid",
        Check::Role => "role",
        Check::Start => "uptime_in_seconds",
        Check::Promotion => "master_replid2",
        _ => "a field",
    })
}

/// Returns what the client would not notice.
pub(super) fn risks(unmet: Checks) -> String {
    listed(unmet, |check| match check {
        Check::Server => "one server under two addresses would vote twice",
        Check::Role => "a replica would vote",
        Check::Start => {
            "a restarted server would vote at once, although it may have forgotten locks"
        }
        Check::Promotion => "a promoted replica would vote at once, although it may lack locks",
        _ => "a check would be left out",
    })
}

fn listed(unmet: Checks, text: impl Fn(Check) -> &'static str) -> String {
    let texts: Vec<_> = unmet.iter().map(text).collect();
    texts.join(", ")
}
