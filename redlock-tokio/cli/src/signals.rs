use std::{fs, io, sync::OnceLock, thread};

use rustix::process::{Signal, WaitOptions, wait};
use signal_hook::{
    consts::SIGCHLD,
    iterator::{SignalsInfo, exfiltrator::WithOrigin},
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Each has a default that ends a process, and can be passed on.
const ENDING: [Signal; 6] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
];

#[derive(Clone, Copy, Debug)]
pub(crate) enum Received {
    /// A child has ended, or has stopped.
    Child,
    Ending {
        signal: Signal,
        /// Whether the kernel has sent it to the whole process group: because of a key, or since the terminal is gone.
        is_of_terminal: bool,
    },
}

/// The signals that this process gets in place of its command.
pub(crate) struct Signals(UnboundedReceiver<Received>);

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        let (sender, received) = unbounded_channel();
        listen(move |it| sender.send(it).is_ok())?;
        Ok(Self(received))
    }

    pub(crate) async fn next(&mut self) -> Received {
        match self.0.recv().await {
            Some(received) => received,
            None => std::future::pending().await, // the thread never ends
        }
    }

    /// Waits for the next signal that would end this process, while it has no command. As process 1 of a container it may
    /// have children all the same.
    pub(crate) async fn next_ending(&mut self) -> Signal {
        loop {
            match self.next().await {
                Received::Child => while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {},
                Received::Ending { signal, .. } => return signal,
            }
        }
    }
}

/// Catches the signals from now on, apart from those that are ignored: `nohup` ignores SIGHUP, and shells have their
/// background jobs ignore SIGINT and SIGQUIT. Ends when the receiver does.
pub(crate) fn listen(mut receive: impl FnMut(Received) -> bool + Send + 'static) -> io::Result<()> {
    let ignored = Ignored::inherited();
    let caught = ENDING.into_iter().filter(|it| !ignored.has(*it));
    let caught = caught.map(Signal::as_raw).chain([SIGCHLD]);
    let mut signals = SignalsInfo::<WithOrigin>::new(caught)?;
    let forward = move || {
        for origin in signals.forever() {
            let received = match Signal::from_named_raw(origin.signal) {
                None | Some(Signal::CHILD) => Received::Child,
                Some(signal) => Received::Ending {
                    signal,
                    is_of_terminal: origin.process.is_none(),
                },
            };
            if !receive(received) {
                return;
            }
        }
    };
    thread::Builder::new().spawn(forward)?;
    Ok(())
}

/// The signals that this process was started to ignore.
static IGNORED: OnceLock<Ignored> = OnceLock::new();

/// Runs before `main`: the runtime of Rust begins by ignoring SIGPIPE.
#[ctor::ctor]
fn read_ignored() {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|it| it.strip_prefix("SigIgn:"));
    if let Some(mask) = mask.and_then(|it| u64::from_str_radix(it.trim(), 16).ok()) {
        let _ = IGNORED.set(Ignored(mask));
    }
}

/// Signals that are ignored, a bit for each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ignored(pub(crate) u64);

impl Ignored {
    /// Returns those that this process was started to ignore.
    pub(crate) fn inherited() -> Self {
        // There is no other way to ask without unsafe code. If the default ends the program, the guardian ends the command.
        let unknown = Self(1 << (Signal::HUP.as_raw() - 1));
        IGNORED.get().copied().unwrap_or(unknown)
    }

    pub(crate) const fn has(self, signal: Signal) -> bool {
        self.0 >> (signal.as_raw() - 1) & 1 == 1
    }
}
