//! Members are asked, and go wrong.

use std::{collections::BTreeSet, sync::Arc};

use tokio::sync::oneshot;

use super::{
    council::{Question, Reign, Succession, Word},
    machine::State,
    owners::Owners,
};
use crate::{
    clock::SECOND,
    host::Host,
    network::{Network, Route},
    seen::Seen,
    world::World,
};

/// Members have addresses beyond those of all servers.
pub(super) fn route_to_member(process: usize, council: usize, member: usize) -> Route {
    let address = 1000 * (council + 1) + member;
    Route { process, address }
}

impl Network {
    /// Asks a member. The receiver gets nothing if the question or the answer is lost.
    pub(crate) fn ask_member(
        &mut self,
        host: &Arc<Host>,
        council: usize,
        member: usize,
    ) -> oneshot::Receiver<Vec<Word>> {
        let (answer, receiver) = oneshot::channel();
        let at = host.now() + self.delay(route_to_member(host.process, council, member));
        host.has_sent.notify_one();
        let question = Question {
            process: host.process,
            council,
            member,
            answer,
        };
        self.queue.push(at, |world| world.ask(question));
        receiver
    }
}

impl World {
    /// A member hears of an owner, now or when it can.
    pub(super) fn follow(
        &mut self,
        council: usize,
        member: usize,
        seats: Vec<usize>,
        reign: Reign,
    ) {
        let at = self.at();
        let later = self.with_authority(|it| {
            let member = &mut it.councils[council].members[member];
            let later = member.lags_until.max(member.down_until);
            if later <= at {
                for seat in &seats {
                    member.follow(at, *seat, reign);
                }
            }
            later
        });
        if later > at {
            let follow = move |world: &mut Self| world.follow(council, member, seats, reign);
            return self.push(later - at, follow);
        }
        self.note_majorities();
    }

    /// Calls `f` with the authorities of this world, which has some.
    pub(super) fn with_authority<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        let mut network = self.network.lock();
        f(network.authorities.state().expect("a world of authorities"))
    }

    /// A question reaches a member.
    fn ask(&mut self, question: Question) {
        let at = self.at();
        let severity = self.configuration.severity;
        let is_lost = !self.is_calm && self.rng.chance(10_000 * severity);
        let Question {
            process,
            council,
            member,
            ..
        } = question;
        let mut network = self.network.lock();
        let state = network.authorities.state().expect("a world of authorities");
        let it = &state.councils[council].members[member];
        let cut_until = it.cut_until.get(&process).copied().unwrap_or(0);
        let is_down = it.down_until > at;
        let machine = state.layout.machine_of_member(member);
        let stands_still_until = machine.map_or(0, |it| state.machines[it].stands_still_until);
        let words = state.councils[council].words(at, member);
        let is_behind = words.iter().any(|it| it.reign != state.latest[it.seat]);
        let server = machine.map(|it| state.layout.server(0, it));
        if is_down || server.is_some_and(|it| network.servers[it].outage.is_some()) {
            return;
        }
        if is_lost {
            return network.seen.note(Seen::QuestionLost);
        }
        if cut_until > at {
            network.seen.note(Seen::Split);
        }
        // What is held up reaches the member later, and gets the answer of that time.
        let later = cut_until.max(stands_still_until);
        if later > at {
            return network.queue.push(later, |world| world.ask(question));
        }
        if is_behind {
            network.seen.note(Seen::MemberBehind);
        }
        let mut delay = network.delay(route_to_member(process, council, member));
        if !self.is_calm && self.rng.chance(10_000 * severity) {
            network.seen.note(Seen::MemberLate);
            let window = Owners::window(self.scale.max_ttl).as_nanos() as u64;
            delay += self.rng.around(window);
        }
        let answer = question.answer;
        // An error means that the process has ended.
        let tell = |_: &mut Self| drop(answer.send(words));
        network.queue.push(at + delay, tell);
    }

    /// A member restarts, hears nothing new for a while, or loses its state.
    pub(crate) fn disturb_member(&mut self) {
        let at = self.at();
        let (council, member) = self.draw_member();
        let kind = self.rng.u8(..3);
        let length = self.rng.around(2 * self.max_ttl());
        let what = self.with_authority(|it| {
            let layout = it.layout;
            let council = &mut it.councils[council];
            let may_lose = layout.machine_of_member(member).is_none() && council.next_loss_at <= at;
            match kind {
                0 => {
                    council.members[member].restart(at + length);
                    Seen::MemberRestart
                }
                1 if may_lose && council.members[member].is_active(at) => {
                    let first_master = |seat| layout.first_master_of(seat);
                    council.lose_state(at, member, at + length, first_master);
                    Seen::MemberLosesState
                }
                _ => {
                    let lags_until = &mut council.members[member].lags_until;
                    *lags_until = (at + length).max(*lags_until);
                    Seen::MemberLags
                }
            }
        });
        self.network.lock().seen.note(what);
        if what == Seen::MemberLosesState {
            self.reunite(length, council, member);
        }
    }

    /// Tells a member the latest owner after a while.
    fn reunite(&self, after: u64, council: usize, member: usize) {
        let (seat, reign) = self.with_authority(|it| {
            let seat = it.councils[council].seats[0];
            (seat, it.latest[seat])
        });
        self.push(after, move |world| {
            world.follow(council, member, vec![seat], reign);
        });
    }

    /// A minority of the members is cut off from the others, together with some processes and with the owner, whose
    /// place a replica takes: there are writers on both sides.
    pub(crate) fn split(&mut self) {
        let at = self.at();
        let (council, member) = self.draw_member();
        let until = at + 2 * self.max_ttl() + self.rng.around(self.max_ttl());
        let succession = self.draw_succession(Some(council));
        let cut_off = self.with_authority(|it| {
            let mut cut_off = BTreeSet::from([member]);
            if let Some(succession) = succession {
                cut_off.extend(it.layout.machine_of_member(succession.old.machine));
                cut_off.remove(&succession.member);
            }
            cut_off
        });
        let loses_state = self.rng.chance(400_000);
        let sides: Vec<_> = (0..self.scale.processes)
            .map(|_| self.rng.chance(400_000))
            .collect();
        let loser = self.with_authority(|it| {
            let layout = it.layout;
            let council = &mut it.councils[council];
            for (process, is_cut_off) in sides.iter().enumerate() {
                for (index, member) in council.members.iter_mut().enumerate() {
                    if cut_off.contains(&index) != *is_cut_off {
                        member.cut_until.insert(process, until);
                    }
                }
            }
            for index in &cut_off {
                let lags_until = &mut council.members[*index].lags_until;
                *lags_until = until.max(*lags_until);
            }
            let loser = cut_off.first().copied().filter(|_| loses_state)?;
            let may_lose = layout.machine_of_member(loser).is_none() && council.next_loss_at <= at;
            may_lose.then(|| {
                council.lose_state(at, loser, until, |seat| layout.first_master_of(seat));
                loser
            })
        });
        if let Some(member) = loser {
            self.network.lock().seen.note(Seen::MemberLosesState);
            self.reunite(until - at, council, member);
        }
        let Some(succession) = succession else {
            return;
        };
        if self.promote_owner(succession) {
            self.network.lock().seen.note(Seen::SplitOwners);
        }
        let machine = succession.old.machine;
        for (process, is_cut_off) in sides.iter().enumerate() {
            // The other side does not reach the owner.
            if !is_cut_off {
                self.cut_route(process, machine, until);
            }
        }
        let delay = until - at + self.rng.around(SECOND);
        self.push(delay, move |world| world.demote_owner(machine));
    }

    fn cut_route(&self, process: usize, machine: usize, until: u64) {
        let servers = self.with_authority(|it| it.layout.servers_of(machine));
        for server in servers {
            let address = server;
            let route = Route { process, address };
            self.network.lock().stall(route, until, until);
        }
    }

    fn draw_member(&mut self) -> (usize, usize) {
        let (councils, members) =
            self.with_authority(|it| (it.councils.len(), it.layout.members()));
        (self.rng.usize(..councils), self.rng.usize(..members))
    }

    /// Decides on a failover: which replica takes the place of which owner, by the word of which member.
    pub(super) fn draw_succession(&mut self, council: Option<usize>) -> Option<Succession> {
        let at = self.at();
        let (shards, layout) = self.with_authority(|it| (it.layout.shards(), it.layout));
        let shard = self.rng.usize(..shards);
        let shard = match council {
            Some(council) if layout.machine_of_member(0).is_none() => council,
            _ => shard,
        };
        self.draw_succession_of(at, shard)
    }
}
