//! The node of the line: its places, and which processes are alive.

use redlock_tokio::node::Standing;

use crate::{
    setup::{Broken, Setup},
    world::PROCESSES,
};

/// A member that is so many counts behind is dead.
pub(crate) const DEAD_AFTER: u8 = 3;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct LineNode {
    /// The places of the line by their numbers, and those of another line: that of another node, or of several keys.
    pub(crate) lines: [Vec<(u8, usize)>; 2],
    /// By process, how many counts ago it has beaten, if it is alive.
    ages: [Option<u8>; PROCESSES],
    /// By process, its lives.
    lives: [u8; PROCESSES],
    /// The number of the last place.
    last: u8,
    /// Whether the clock shows another second than at the last beat.
    pub(crate) is_new_second: bool,
    /// Only a clock tells: so many seconds have passed, in which the node hung.
    pub(crate) hung_for: u8,
    /// Whether the count has risen in the last second but one.
    rests: bool,
}

/// What happens beside one request to the node.
pub(crate) struct Request<'a> {
    pub(crate) setup: &'a Setup,
    /// Who hears a call: all but those that were killed.
    pub(crate) hears: [bool; PROCESSES],
    pub(crate) is_free: bool,
    pub(crate) called: Vec<usize>,
    pub(crate) buried: Vec<usize>,
}

impl LineNode {
    pub(crate) fn line_of(&self, process: usize) -> Option<usize> {
        let stands = |line: &Vec<(u8, usize)>| line.iter().any(|it| it.1 == process);
        self.lines.iter().position(stands)
    }

    /// Returns how many stand before a process, and the number of its place.
    pub(crate) fn place(&self, line: usize, process: usize) -> Option<(usize, u8)> {
        let places = &self.lines[line];
        let ahead = places.iter().position(|it| it.1 == process)?;
        Some((ahead, places[ahead].0))
    }

    pub(crate) fn join(
        &mut self,
        line: usize,
        process: usize,
        number: Option<u8>,
        request: &mut Request<'_>,
    ) -> Standing {
        self.beat(process, request);
        if self.place(line, process).is_none() {
            self.last += u8::from(number.is_none());
            let number = number.unwrap_or(self.last);
            let at = self.lines[line].partition_point(|it| it.0 <= number);
            self.lines[line].insert(at, (number, process));
        }
        let (ahead, number) = self.place(line, process).expect("it has just joined");
        Standing {
            ahead: ahead as u32,
            number: number.into(),
            life: self.lives[process].into(),
            is_called: true,
        }
    }

    /// Removes the dead in front of a line.
    pub(crate) fn remove_dead_heads(&mut self, line: usize, process: usize, setup: &Setup) {
        while let Some((_, head)) = self.lines[line].first().copied()
            && head != process
            && self.ages[head].is_none()
            && setup.broken != Broken::NoBeats
        {
            self.lines[line].remove(0);
        }
    }

    pub(crate) fn leave(&mut self, line: usize, process: usize) -> bool {
        let place = self.lines[line].iter().position(|it| it.1 == process);
        place.map(|at| self.lines[line].remove(at)).is_some()
    }

    /// Returns the life of a process that has places.
    pub(crate) fn life(&self, process: usize) -> Option<u64> {
        let is_alive = self.ages[process].is_some() && self.line_of(process).is_some();
        is_alive.then_some(self.lives[process].into())
    }

    pub(crate) fn beat(&mut self, process: usize, request: &mut Request<'_>) {
        if request.setup.broken == Broken::NoBeats {
            return;
        }
        let mut rise = u8::from(self.is_new_second);
        match request.setup.broken {
            Broken::BeatsByClock => rise += self.hung_for,
            // A second since the count rose has passed at each other beat only.
            Broken::CountsByElapsedTime if rise > 0 => {
                self.rests = !self.rests;
                rise = u8::from(!self.rests);
            }
            _ => {}
        }
        (self.is_new_second, self.hung_for) = (false, 0);
        if self.ages[process].is_none() {
            self.lives[process] += 1;
        }
        for age in self.ages.iter_mut().flatten() {
            *age = (*age + rise).min(DEAD_AFTER);
        }
        self.ages[process] = Some(0);
        for dead in 0..PROCESSES {
            if self.ages[dead] == Some(DEAD_AFTER) {
                self.bury(dead, request);
            }
        }
    }

    /// Removes all places of a process, and calls those that are the first because of that.
    pub(crate) fn bury(&mut self, dead: usize, request: &mut Request<'_>) {
        let broken = request.setup.broken;
        if (broken == Broken::OneRemoval && !request.buried.is_empty())
            || (broken == Broken::RemovesOnlyIfFree && !request.is_free)
        {
            return;
        }
        self.ages[dead] = None;
        request.buried.push(dead);
        for line in 0..self.lines.len() {
            if self.leave(line, dead) {
                self.call(line, request);
            }
        }
    }

    /// Calls the first, and the last of those that may try.
    pub(crate) fn call(&mut self, line: usize, request: &mut Request<'_>) {
        let active = request.setup.active as usize;
        let ranks = match request.setup.broken {
            Broken::CallsNobody => Vec::new(),
            Broken::CallsOnlyTheLast => vec![active - 1],
            _ if active == 1 => vec![0],
            _ => vec![0, active - 1],
        };
        for rank in ranks {
            let Some((_, next)) = self.lines[line].get(rank).copied() else {
                continue;
            };
            if request.hears[next]
                || matches!(request.setup.broken, Broken::NobodyHears | Broken::NoBeats)
            {
                request.called.push(next);
            } else {
                return self.bury(next, request);
            }
        }
    }

    /// Loses the lines and all that it knows.
    pub(crate) fn forget(&mut self) {
        let lives = self.lives;
        let last = self.last;
        *self = Self {
            lives,
            last,
            ..Self::default()
        };
    }
}
