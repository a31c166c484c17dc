//! The marks of writers that wait, which may be lost, late or repeated. Nothing may depend on them.

use redlock_tokio::node::{Command, Operation};

use super::Network;
use crate::{clock::SECOND, seen::Seen};

impl Network {
    /// The probe of a writer that waits marks its key.
    pub(super) fn mark(&mut self, at: u64, server: usize, command: &Command) {
        if !matches!(command.operation(), Operation::Probe { mark: Some(_), .. }) {
            return;
        }
        if self.befalls(Seen::MarkLost) {
            return;
        }
        let is_late = self.befalls(Seen::MarkLate);
        let is_repeated = self.befalls(Seen::MarkRepeated);
        if !is_late {
            self.servers[server].mark(at, command);
            self.seen.note(Seen::Mark);
        }
        if is_late || is_repeated {
            let at = at + self.rng.around(SECOND);
            let command = command.clone();
            let mark = move |network: &mut Self| network.handle_mark(server, &command);
            self.queue.push_to_network(at, mark);
        }
    }

    /// A mark arrives that was late or is repeated.
    pub(crate) fn handle_mark(&mut self, server: usize, command: &Command) {
        let at = self.at();
        let it = &mut self.servers[server];
        if it.is_at_work(at) {
            it.mark(at, command);
        }
    }
}
