//! Figures of the operating system about this process.

use std::fs;

use crate::{Result, line::Size};

pub(super) fn size() -> Result<Size> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|it| it.trim().strip_suffix(" kB"));
    Ok(Size {
        descriptors: fs::read_dir("/proc/self/fd")?.count(),
        kilobytes: kilobytes.ok_or("no VmRSS in /proc/self/status")?.parse()?,
    })
}

/// Returns how many sockets are open.
pub(super) fn sockets() -> Result<usize> {
    let descriptors = fs::read_dir("/proc/self/fd")?;
    let targets = descriptors.filter_map(|it| fs::read_link(it.ok()?.path()).ok());
    let sockets = targets.filter(|it| it.to_string_lossy().starts_with("socket:"));
    Ok(sockets.count())
}
