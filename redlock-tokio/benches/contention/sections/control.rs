use std::time::Duration;

use crate::{Result, contestants::Name, test_bed::TestBed, workload::Workload};

const WORKLOAD: Workload = Workload {
    processes: 4,
    tasks: 8,
    hold: Duration::from_millis(1),
};
const TIME: Duration = Duration::from_millis(200);

/// Fails unless holds are seen to overlap where there is no lock.
pub(super) fn check(bed: &TestBed) -> Result<()> {
    let (history, _) = bed.run(Name::NoLock, WORKLOAD, TIME)?;
    match history.overlaps() {
        0 => Err("no overlap was seen without a lock, so none would be seen with one".into()),
        overlaps => {
            let holds = history.holds();
            println!("Without a lock {overlaps} of {holds} holds overlap, as they must.\n");
            Ok(())
        }
    }
}
