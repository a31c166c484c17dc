//! Members are asked, and go wrong.

use std::{collections::BTreeSet, sync::Arc};

use tokio::sync::oneshot;

use super::{
    council::{Reign, Word},
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
        let process = host.process;
        let ask = move |world: &mut World| world.ask(process, council, member, answer);
        self.queue.push(at, ask);
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
            self.push(later - at, follow);
        }
    }

    /// A question reaches a member.
    fn ask(
        &mut self,
        process: usize,
        council: usize,
        member: usize,
        answer: oneshot::Sender<Vec<Word>>,
    ) {
        let at = self.at();
        let chance = 10_000 * self.configuration.severity;
        let is_lost = !self.is_calm && self.rng.chance(chance);
        let network = &mut *self.network.lock();
        let it = network
            .authorities
            .as_ref()
            .expect("a world of authorities");
        let machine = it.layout.machine_of_member(member);
        let server = machine.map(|machine| &network.servers[it.layout.server(0, machine)]);
        let asked = &it.councils[council].members[member];
        if asked.down_until > at || server.is_some_and(|it| it.outage.is_some()) {
            return;
        }
        if is_lost {
            return network.seen.note(Seen::QuestionLost);
        }
        let cut_until = asked.cut_until.get(&process).copied().unwrap_or(0);
        if cut_until > at {
            network.seen.note(Seen::Split);
        }
        // What is held up reaches the member later, and gets the answer of that time.
        let later = cut_until.max(server.map_or(0, |it| it.stands_still_until));
        if later > at {
            let ask = move |world: &mut Self| world.ask(process, council, member, answer);
            return network.queue.push(later, ask);
        }
        let words = it.councils[council].words(at, member);
        if words.iter().any(|word| word.reign != it.latest[word.seat]) {
            network.seen.note(Seen::MemberBehind);
        }
        let mut delay = network.delay(route_to_member(process, council, member));
        if !self.is_calm && self.rng.chance(chance) {
            network.seen.note(Seen::MemberLate);
            let window = Owners::window(self.scale.max_ttl).as_nanos() as u64;
            delay += self.rng.around(window);
        }
        // An error means that the process has ended.
        let tell = move |_: &mut Self| drop(answer.send(words));
        network.queue.push(at + delay, tell);
    }

    /// A member restarts, hears nothing new for a while, or loses its state.
    pub(crate) fn disturb_member(&mut self) {
        let (council, member) = self.draw_member();
        let kind = self.rng.u8(..3);
        let at = self.at();
        let until = at + self.rng.around(2 * self.max_ttl());
        let is_active =
            self.with_authority(|it| it.councils[council].members[member].is_active(at));
        if kind == 1 && is_active && self.lose_state(council, member, until) {
            return;
        }
        let network = &mut *self.network.lock();
        let member = &mut network.authority().councils[council].members[member];
        if kind == 0 {
            member.restart(until);
            network.seen.note(Seen::MemberRestart);
        } else {
            member.lag(until);
            network.seen.note(Seen::MemberLags);
        }
    }

    /// Takes the state of a member away, and tells it the latest owner after a while. Returns whether that was
    /// possible: a node of a cluster keeps its state.
    fn lose_state(&self, council: usize, member: usize, until: u64) -> bool {
        let at = self.at();
        let latest = self.with_authority(|it| {
            let layout = it.layout;
            let council = &mut it.councils[council];
            let can_lose = layout.machine_of_member(member).is_none() && council.next_loss_at <= at;
            can_lose.then(|| {
                council.lose_state(at, member, until, layout);
                let seat = council.seats[0];
                (seat, it.latest[seat])
            })
        });
        let Some((seat, reign)) = latest else {
            return false;
        };
        self.network.lock().seen.note(Seen::MemberLosesState);
        self.push(until - at, move |world| {
            world.follow(council, member, vec![seat], reign);
        });
        true
    }

    /// A minority of the members is cut off from the others, together with some processes and with the owner, whose
    /// place a replica takes: there are writers on both sides.
    pub(crate) fn split(&mut self) {
        let at = self.at();
        let (council, member) = self.draw_member();
        let until = at + 2 * self.max_ttl() + self.rng.around(self.max_ttl());
        let is_cluster = self.with_authority(|it| it.layout.machine_of_member(member).is_some());
        let shard = if is_cluster {
            self.draw_shard()
        } else {
            council
        };
        let succession = self.draw_succession(shard);
        let mut cut_off = BTreeSet::from([member]);
        if let Some(succession) = succession {
            if is_cluster {
                cut_off.insert(succession.old.machine);
            }
            cut_off.remove(&succession.member);
        }
        let loses_state = self.rng.chance(400_000);
        let sides: Vec<_> = (0..self.scale.processes)
            .map(|_| self.rng.chance(400_000))
            .collect();
        self.with_authority(|it| {
            for (index, member) in it.councils[council].members.iter_mut().enumerate() {
                let is_member_cut_off = cut_off.contains(&index);
                if is_member_cut_off {
                    member.lag(until);
                }
                for (process, is_cut_off) in sides.iter().enumerate() {
                    if is_member_cut_off != *is_cut_off {
                        member.cut_until.insert(process, until);
                    }
                }
            }
        });
        if let Some(loser) = cut_off.first().filter(|_| loses_state) {
            self.lose_state(council, *loser, until);
        }
        let Some(succession) = succession else {
            return;
        };
        if self.promote_owner(succession) {
            self.network.lock().seen.note(Seen::SplitOwners);
        }
        let machine = succession.old.machine;
        let servers = self.with_authority(|it| it.layout.servers_of(machine));
        let others = (0..sides.len()).filter(|it| !sides[*it]);
        // The other side does not reach the owner.
        for process in others {
            for &address in &servers {
                let route = Route { process, address };
                self.network.lock().stall(route, until, until);
            }
        }
        let delay = until - at + self.rng.around(SECOND);
        self.push(delay, move |world| world.demote_owner(machine));
    }

    fn draw_member(&mut self) -> (usize, usize) {
        let layout = self.with_authority(|it| it.layout);
        let council = self.rng.usize(..layout.councils());
        (council, self.rng.usize(..layout.members()))
    }
}
