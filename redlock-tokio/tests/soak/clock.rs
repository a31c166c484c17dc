use rustix::time::{ClockId, clock_gettime};

/// Returns the nanoseconds of the clock that decides on validity. All processes share it.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    // Neither is negative, since the clock starts with the machine.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
