use rustix::time::{ClockId, clock_gettime};

/// Returns the nanoseconds of the clock that decides on validity. All processes share it.
pub(crate) fn now() -> u64 {
    read(ClockId::Boottime)
}

/// Returns by how many nanoseconds the clock is ahead of `CLOCK_MONOTONIC`, which stands still while the machine is
/// suspended.
pub(crate) fn ahead_of_monotonic() -> u64 {
    let readings = (0..100).map(|_| {
        let before = read(ClockId::Monotonic);
        now() - before
    });
    // The reading that was interrupted least.
    readings.min().expect("there are a hundred")
}

fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    // Neither is negative, since the clock starts with the machine.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
