//! What the system says of this process.

use std::{fs, time::Duration};

use rustix::time::{ClockId, clock_gettime};

use crate::Result;

/// Returns the processor time of all its threads.
pub(super) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::from_secs(time.tv_sec.unsigned_abs())
        + Duration::from_nanos(time.tv_nsec.unsigned_abs())
}

/// Returns its resident memory.
pub(super) fn resident_bytes() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|it| it.trim().strip_suffix(" kB"));
    let kilobytes: u64 = kilobytes.ok_or("no VmRSS in /proc/self/status")?.parse()?;
    Ok(kilobytes * 1024)
}
