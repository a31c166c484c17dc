//! What events do to a client.

use redlock_core::NodeId;

use crate::{
    configuration::Mutant, events::ClientEvent, history::Breach, seen::Seen, world::World,
};

impl World {
    /// Lets an event act on a client, or wait until the client's pause is over.
    pub(crate) fn client_event(&mut self, client: usize, life: u32, event: ClientEvent) {
        let it = &mut self.clients[client];
        if it.life != life || !it.up {
            return;
        }
        if it.paused_at.is_some() {
            it.stalled.push_back(event);
            return;
        }
        let at = self.at;
        let trace = |code: u64, detail: u64| [at, code << 32 | client as u64, detail, 0];
        match event {
            ClientEvent::Begin { key } => {
                self.trace.event(trace(10, 0));
                self.begin(client, key);
            }
            ClientEvent::Wake => {
                self.trace.event(trace(11, 0));
                self.wake(client);
            }
            ClientEvent::Send {
                master,
                request,
                purpose,
            } => {
                self.trace.event(trace(12, master as u64));
                self.send(client, master, request, purpose);
            }
            ClientEvent::Answer(answer) => {
                self.trace.event(trace(13, answer.arrival.flight));
                self.land(client, answer);
            }
            ClientEvent::Late { master, epoch } => {
                self.trace.event(trace(14, master as u64));
                self.time_out(client, master, epoch);
            }
            ClientEvent::Broken { master, epoch } => {
                self.trace.event(trace(15, master as u64));
                self.break_up(client, master, epoch);
            }
            ClientEvent::Connect { master } => {
                self.trace.event(trace(16, master as u64));
                self.connect(client, master);
            }
            ClientEvent::Connected {
                master,
                incarnation,
                sighting,
                named,
            } => {
                self.trace.event(trace(17, u64::from(incarnation)));
                self.connected(client, master, incarnation, sighting, named);
            }
            ClientEvent::Poll { node } => {
                self.trace.event(trace(22, node as u64));
                self.poll(client, node);
            }
            ClientEvent::Word { node, word } => {
                self.trace.event(trace(23, node as u64));
                self.hear_word(client, node, word);
            }
            ClientEvent::DeliverOwed { master } => {
                self.trace.event(trace(18, master as u64));
                self.deliver_owed(client, master);
            }
            ClientEvent::Act { lease, act } => {
                self.trace.event(trace(19, lease as u64));
                self.act(client, lease, act);
            }
            ClientEvent::Retire => self.retire(client),
        }
        self.settle(client);
    }

    /// Ends a pause: what has piled up is dealt with, the timer first or last.
    pub(crate) fn resume(&mut self, client: usize, life: u32) {
        let at = self.at;
        let it = &mut self.clients[client];
        let Some(paused_at) = it.paused_at.filter(|_| it.life == life) else {
            return;
        };
        let held_before = it
            .active
            .as_ref()
            .is_some_and(|active| active.lease.valid_until(it.now(paused_at)).is_some());
        let believes = it
            .active
            .as_ref()
            .is_some_and(|active| active.lease.valid_until(it.now(at)).is_some());
        if self.configuration.mutant == Some(Mutant::ClockStopsInPause) {
            it.stopped_for += it.clock.local(at) - it.clock.local(paused_at);
        }
        it.paused_at = None;
        let stalled = std::mem::take(&mut it.stalled);
        self.trace
            .event([at, 20, client as u64, stalled.len() as u64]);
        if held_before && !believes {
            self.note(Seen::ResumedTooLate);
        }
        if self.rng.chance(500_000) {
            self.client_event(client, life, ClientEvent::Wake);
        }
        for event in stalled {
            self.client_event(client, life, event);
        }
    }

    fn wake(&mut self, client: usize) {
        let (at, now) = (self.at, self.clients[client].now(self.at));
        let Some(active) = &mut self.clients[client].active else {
            return;
        };
        if active.armed.is_some_and(|armed| armed <= at) {
            active.armed = None;
        }
        let spurious = active.lease.poll_timeout().is_none_or(|due| due > now);
        // It is told now and then that a key is free, whether it is or not.
        let attempts = active.lease.attempts();
        if self.rng.chance(300_000) {
            let node = NodeId::new(self.rng.index(self.scale.quorum.nodes())).expect("a master");
            active.lease.handle_freed(now, node);
        }
        let freed = active.lease.attempts() > attempts;
        active.lease.handle_timeout(now);
        let moved_on = active.lease.poll_timeout().is_none_or(|due| due > now);
        if freed {
            self.note(Seen::FreedNotifier);
        }
        if spurious {
            self.note(Seen::Spurious);
        }
        if !moved_on {
            self.fail(Breach::TimeoutNotLater { client });
        }
    }
}
