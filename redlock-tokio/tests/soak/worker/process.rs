//! What the system says of this process.

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
    let mut sockets = 0;
    for descriptor in fs::read_dir("/proc/self/fd")? {
        // That of the directory itself is gone when it is looked at.
        let Ok(target) = fs::read_link(descriptor?.path()) else {
            continue;
        };
        sockets += usize::from(target.to_string_lossy().starts_with("socket:"));
    }
    Ok(sockets)
}
