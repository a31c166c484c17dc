use std::io;

use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind};

/// The signals that this process gets in place of its command.
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

/// Each has a default that ends a process, and can be passed on.
const PASSED_ON: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        let listen =
            |signal: Signal| Ok((signal, unix::signal(SignalKind::from_raw(signal as i32))?));
        PASSED_ON
            .into_iter()
            .map(listen)
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> Signal {
        let received = self.0.iter_mut().map(|(signal, stream)| {
            let signal = *signal;
            Box::pin(async move {
                stream.recv().await;
                signal
            })
        });
        futures::future::select_all(received).await.0
    }
}
