//! Elections among processes that are stopped, killed and cut off, over servers that restart.
//!
//! Each process notes by `CLOCK_BOOTTIME`, which all share, from when until when it was the leader by its own clock. No two of
//! these times may overlap. `ELECTION_ROUNDS=200` makes a long run, and the time to a new leader is printed.

use std::{
    env,
    fs::{self, File},
    future::pending,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use fastrand::Rng;
use redlock_kit::{Proxy, RedisServers};
use redlock_tokio::{Candidate, Redlock};
use rustix::{
    process::{Pid, Signal, kill_process},
    time::{ClockId, clock_gettime},
};
use tokio::runtime::Runtime;

use crate::support::{MS, ROLE, role};

const TTL: Duration = Duration::from_millis(500);

/// The longest time in nanoseconds between two readings of the clock that count as one moment.
const SAME_MOMENT: u64 = 1_000_000;

/// Returns the nanoseconds of the clock that decides on validity.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// A time for which a process was the leader, by its clock: the first moment and the last that it has noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Term {
    first: u64,
    last: u64,
}

/// The terms of a process, in a file that outlives it.
struct Notes(File);

impl Notes {
    const SIZE: usize = 16;

    fn write(&self, number: u64, term: Term) {
        let bytes = [term.first.to_le_bytes(), term.last.to_le_bytes()].concat();
        let at = number * Self::SIZE as u64;
        self.0.write_all_at(&bytes, at).expect("the file grows");
    }

    fn read(path: &Path) -> Vec<Term> {
        let bytes = fs::read(path).unwrap_or_default();
        let terms = bytes.chunks_exact(Self::SIZE).map(|term| {
            let half = |at: usize| u64::from_le_bytes(term[at..at + 8].try_into().expect("eight"));
            Term {
                first: half(0),
                last: half(8),
            }
        });
        terms.collect()
    }
}

/// The part of a process, as its parent sets it.
struct Settings {
    urls: Vec<String>,
    notes: PathBuf,
    /// How many of its notes rest on one look at its leadership: one, unless it is broken on purpose.
    notes_by_look: u32,
}

impl Settings {
    fn to_role(&self) -> String {
        let Self {
            urls,
            notes,
            notes_by_look,
        } = self;
        let (urls, notes) = (urls.join(","), notes.display());
        format!("{urls} {notes} {notes_by_look}")
    }

    fn of_role(role: &str) -> Self {
        let [urls, notes, notes_by_look] = role.split(' ').collect::<Vec<_>>()[..] else {
            panic!("not a role: {role}");
        };
        Self {
            urls: urls.split(',').map(str::to_owned).collect(),
            notes: notes.into(),
            notes_by_look: notes_by_look.parse().expect("a number"),
        }
    }
}

/// Is a candidate until the parent has gone.
fn be_a_candidate(settings: &Settings) {
    thread::spawn(|| {
        // The end of the input is the end of the parent.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        process::exit(0);
    });
    let runtime = Runtime::new().unwrap();
    let builder = Redlock::builder().nodes(&settings.urls).ttl(TTL);
    let redlock = runtime.block_on(builder.build()).unwrap();
    let election = redlock.elect("e");
    let candidate = election.candidate();
    runtime.spawn(election.run(async |_| pending::<()>().await));
    take_notes(&candidate, settings);
}

/// Notes every millisecond whether this process leads, on a thread of its own, which waits for no task.
fn take_notes(candidate: &Candidate, settings: &Settings) {
    let notes = Notes(File::create(&settings.notes).unwrap());
    let mut terms = 0;
    let mut current = None;
    let mut leadership = None;
    for step in 0_u32.. {
        thread::sleep(MS(1));
        let before = now();
        if step % settings.notes_by_look == 0 {
            leadership = candidate.leadership().map(|hold| hold.token());
        }
        let after = now();
        let Some(token) = leadership else {
            continue;
        };
        match &mut current {
            Some((known, term)) if *known == token => {
                let term: &mut Term = term;
                term.last = before;
                notes.write(terms - 1, *term);
            }
            // If the process was stopped since it looked, the leadership may be over.
            _ if after - before > SAME_MOMENT => {}
            _ => {
                let term = Term {
                    first: after,
                    last: after,
                };
                current = Some((token, term));
                notes.write(terms, term);
                terms += 1;
            }
        }
    }
}

/// A candidate in another process, with a way of its own to each server.
struct Process {
    proxies: Vec<Proxy>,
    child: Child,
    notes: PathBuf,
    /// The terms of earlier processes in this place.
    past: Vec<Term>,
    notes_by_look: u32,
}

impl Process {
    fn start(servers: &RedisServers, notes: PathBuf, notes_by_look: u32) -> Self {
        let proxies = servers.iter().map(|it| Proxy::spawn(it.address()).unwrap());
        let proxies = proxies.collect::<Vec<_>>();
        let child = Self::spawn(&proxies, &notes, notes_by_look);
        Self {
            proxies,
            child,
            notes,
            past: Vec::new(),
            notes_by_look,
        }
    }

    fn spawn(proxies: &[Proxy], notes: &Path, notes_by_look: u32) -> Child {
        let settings = Settings {
            urls: proxies.iter().map(Proxy::url).collect(),
            notes: notes.to_owned(),
            notes_by_look,
        };
        Command::new(env::current_exe().unwrap())
            .args(["--exact", TEST, "--nocapture"])
            .env(ROLE, settings.to_role())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the test binary starts")
    }

    fn restart(&mut self) {
        self.kill();
        self.past.extend(Notes::read(&self.notes));
        fs::remove_file(&self.notes).unwrap();
        self.child = Self::spawn(&self.proxies, &self.notes, self.notes_by_look);
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn cut_off(&self) {
        for proxy in &self.proxies {
            proxy.requests().hold();
            proxy.replies().hold();
        }
    }

    fn heal(&self) {
        self.proxies.iter().for_each(Proxy::heal);
    }

    fn terms(&self) -> Vec<Term> {
        [self.past.clone(), Notes::read(&self.notes)].concat()
    }

    fn leads(&self) -> bool {
        let last = Notes::read(&self.notes).last().map(|term| term.last);
        last.is_some_and(|last| last + 20_000_000 > now())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The fault of a round, which hits the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// SIGSTOP, for longer than its lock lives.
    Stop,
    /// `kill -9`.
    Kill,
    /// It reaches no server. Its earlier messages arrive later.
    CutOff,
    /// All servers restart without their keys.
    Restart,
}

/// The processes, their servers, and how long it took until there was another leader.
struct Fleet {
    servers: RedisServers,
    processes: Vec<Process>,
    waits: Vec<(Fault, Duration)>,
    _directory: tempfile::TempDir,
}

impl Fleet {
    fn start(notes_by_look: u32) -> Self {
        let servers = RedisServers::spawn(3).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let processes = (0..3).map(|number| {
            let notes = directory.path().join(format!("{number}"));
            Process::start(&servers, notes, notes_by_look)
        });
        Self {
            processes: processes.collect(),
            servers,
            waits: Vec::new(),
            _directory: directory,
        }
    }

    fn round(&mut self, fault: Fault, rng: &mut Rng) {
        let leader = until("there is a leader", || {
            self.processes.iter().position(Process::leads)
        });
        let begun = now();
        let process = &mut self.processes[leader];
        match fault {
            Fault::Stop => process.signal(Signal::STOP),
            Fault::Kill => process.kill(),
            Fault::CutOff => process.cut_off(),
            Fault::Restart => self.servers.restart().unwrap(),
        }
        let next = until("there is another leader", || {
            let terms = self.processes.iter().flat_map(Process::terms);
            terms
                .map(|term| term.first)
                .filter(|first| *first > begun)
                .min()
        });
        self.waits.push((fault, Duration::from_nanos(next - begun)));
        thread::sleep(MS(rng.u64(0..300)));
        let process = &mut self.processes[leader];
        match fault {
            Fault::Stop => process.signal(Signal::CONT),
            Fault::Kill => process.restart(),
            Fault::CutOff => process.heal(),
            Fault::Restart => {}
        }
        thread::sleep(MS(rng.u64(0..300)));
    }

    /// Returns the pairs of terms of which one begins before the other has ended.
    fn overlaps(&self) -> Vec<[Term; 2]> {
        let mut terms: Vec<_> = self.processes.iter().flat_map(Process::terms).collect();
        terms.sort();
        println!("{} terms", terms.len());
        let mut overlaps = Vec::new();
        let mut longest: Option<Term> = None;
        for term in terms {
            if let Some(before) = longest.filter(|before| term.first <= before.last) {
                overlaps.push([before, term]);
            }
            longest = longest
                .into_iter()
                .chain([term])
                .max_by_key(|term| term.last);
        }
        overlaps
    }

    fn print_waits(&mut self) {
        self.waits.sort();
        for waits in self.waits.chunk_by(|(one, _), (other, _)| one == other) {
            let at = |part: f64| {
                waits[((waits.len() - 1) as f64 * part) as usize]
                    .1
                    .as_millis()
            };
            let fault = format!("{:?}", waits[0].0);
            println!(
                "{fault:<8} {:>4} rounds, a new leader after {} ms (median), {} (9 of 10), {} (longest)",
                waits.len(),
                at(0.5),
                at(0.9),
                at(1.0),
            );
        }
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "not within 30 s: {what}");
        thread::sleep(MS(2));
    }
}

const TEST: &str = "election::there_are_never_two_leaders_by_their_clocks";

#[test]
fn there_are_never_two_leaders_by_their_clocks() {
    if let Some(role) = role() {
        return be_a_candidate(&Settings::of_role(&role));
    }
    let rounds = env::var("ELECTION_ROUNDS").map_or(8, |it| it.parse().expect("a number"));
    let seed = env::var("ELECTION_SEED")
        .map_or_else(|_| fastrand::u64(..), |it| it.parse().expect("a number"));
    println!("ELECTION_SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let mut fleet = Fleet::start(1);
    let faults = [Fault::Stop, Fault::Kill, Fault::CutOff, Fault::Restart];
    for round in 0..rounds {
        fleet.round(faults[round % faults.len()], &mut rng);
    }
    fleet.print_waits();
    let overlaps = fleet.overlaps();
    assert!(overlaps.is_empty(), "{overlaps:?}");
}

/// The control: processes that go on for 300 steps, of a millisecond or more, after each look at their leadership.
#[test]
fn leaders_that_do_not_look_at_their_clocks_are_found() {
    let mut fleet = Fleet::start(300);
    let mut rng = Rng::with_seed(7);
    fleet.round(Fault::Stop, &mut rng);
    assert!(!fleet.overlaps().is_empty());
}
