//! Elections among processes that are stopped, killed and cut off, over servers that restart.
//!
//! Each process notes by `CLOCK_BOOTTIME`, which all share, from when until when it was the leader by its own clock. No
//! two of these times may overlap. `ELECTION_ROUNDS=200` makes a long run, and the time to a new leader is printed.

use std::{
    collections::BTreeMap,
    env,
    future::pending,
    io::{self, Write},
    process::{self, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use fastrand::Rng;
use redlock_kit::{Proxy, RedisServers, Worker};
use redlock_tokio::{Candidate, Redlock};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Runtime;

use crate::support::{MS, ROLE, role};

const TTL: Duration = Duration::from_millis(500);

/// The longest time in nanoseconds between two readings of the clock that count as one moment.
const SAME_MOMENT: u64 = 1_000_000;

const TEST: &str = "election::there_are_never_two_leaders_by_their_clocks";

#[test]
fn there_are_never_two_leaders_by_their_clocks() {
    if let Some(role) = role() {
        return be_a_candidate(&role);
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
    println!("{} terms", fleet.terms().len());
    let overlaps = fleet.overlaps();
    assert!(overlaps.is_empty(), "{overlaps:?}");
}

/// The control: processes that go on for 300 steps, of a millisecond or more, after each look at their leadership.
#[test]
fn leaders_that_do_not_look_at_their_clocks_are_found() {
    let mut fleet = Fleet::start(300);
    let mut rng = Rng::with_seed(7);
    fleet.round(Fault::Stop, &mut rng);
    until("two leaders", || fleet.overlaps().pop());
}

/// A time for which a process was the leader, by its clock: the first moment and the last that it has noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Term {
    first: u64,
    last: u64,
}

/// Returns the nanoseconds of the clock that decides on validity.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Is a candidate until the parent has gone. The role has the servers, and how many notes rest on one look at the
/// leadership: one, unless the process is broken on purpose.
fn be_a_candidate(role: &str) {
    let (urls, notes_by_look) = role.split_once(' ').expect("two words");
    thread::spawn(|| {
        // The end of the input is the end of the parent.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        process::exit(0);
    });
    let runtime = Runtime::new().unwrap();
    let builder = Redlock::builder().nodes(urls).ttl(TTL);
    let redlock = runtime.block_on(builder.build()).unwrap();
    let election = redlock.elect("e");
    let candidate = election.candidate();
    runtime.spawn(election.run(async |_| pending::<()>().await));
    take_notes(&candidate, notes_by_look.parse().expect("a number"));
}

/// Notes every millisecond whether this process leads, on a thread of its own, which waits for no task: a line with the
/// first moment of a term and the last.
fn take_notes(candidate: &Candidate, notes_by_look: u32) {
    let mut current = None;
    let mut leadership = None;
    for step in 0_u32.. {
        thread::sleep(MS(1));
        let before = now();
        if step % notes_by_look == 0 {
            leadership = candidate.leadership().map(|hold| hold.token());
        }
        let after = now();
        let Some(token) = leadership else {
            continue;
        };
        let (first, last) = match current {
            Some((known, first)) if known == token => (first, before),
            // If the process was stopped since it looked, the leadership may be over.
            _ if after - before > SAME_MOMENT => continue,
            _ => (after, after),
        };
        current = Some((token, first));
        let _ = writeln!(io::stdout(), "term {first} {last}"); // the parent may be gone
    }
}

/// The terms that processes have noted, by their first moments.
type Terms = Arc<Mutex<BTreeMap<u64, u64>>>;

/// A candidate in another process, with a way of its own to each server.
struct Process {
    proxies: Vec<Proxy>,
    role: String,
    worker: Worker,
    terms: Terms,
}

impl Process {
    fn start(servers: &RedisServers, notes_by_look: u32) -> Self {
        let proxies = servers.iter().map(|it| Proxy::spawn(it.address()).unwrap());
        let proxies: Vec<_> = proxies.collect();
        let urls: Vec<_> = proxies.iter().map(Proxy::url).collect();
        let role = format!("{} {notes_by_look}", urls.join(","));
        let terms = Terms::default();
        Self {
            worker: Self::spawn(&role, &terms),
            proxies,
            role,
            terms,
        }
    }

    fn spawn(role: &str, terms: &Terms) -> Worker {
        let terms = Arc::clone(terms);
        let mut program = Command::new(env::current_exe().unwrap());
        program.args(["--exact", TEST, "--nocapture"]);
        program.env(ROLE, role).stderr(Stdio::null());
        let hear = move |line: Option<String>| {
            if let Some((_, term)) = line.as_deref().and_then(|it| it.split_once("term ")) {
                let (first, last) = term.split_once(' ').expect("two moments");
                let [first, last] = [first, last].map(|it| it.parse().expect("a moment"));
                terms.lock().unwrap().insert(first, last);
            }
        };
        Worker::start(&mut program, hear).expect("the test binary starts")
    }

    fn restart(&mut self) {
        self.worker = Self::spawn(&self.role, &self.terms);
    }

    fn terms(&self) -> Vec<Term> {
        let terms = self.terms.lock().unwrap();
        terms
            .iter()
            .map(|(&first, &last)| Term { first, last })
            .collect()
    }

    fn leads(&self) -> bool {
        let last = self.terms().last().map(|term| term.last);
        last.is_some_and(|last| last + 20_000_000 > now())
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
}

impl Fleet {
    fn start(notes_by_look: u32) -> Self {
        let servers = RedisServers::spawn(3).unwrap();
        let processes = (0..3).map(|_| Process::start(&servers, notes_by_look));
        Self {
            processes: processes.collect(),
            servers,
            waits: Vec::new(),
        }
    }

    fn round(&mut self, fault: Fault, rng: &mut Rng) {
        let leader = until("there is a leader", || {
            self.processes.iter().position(Process::leads)
        });
        let begun = now();
        let process = &mut self.processes[leader];
        match fault {
            Fault::Stop => process.worker.freeze(),
            Fault::Kill => process.worker.kill(),
            Fault::CutOff => process.proxies.iter().for_each(|it| {
                it.requests().hold();
                it.replies().hold();
            }),
            Fault::Restart => self.servers.restart().unwrap(),
        }
        let next = until("there is another leader", || {
            let mut firsts = self.terms().into_iter().map(|term| term.first);
            firsts.find(|first| *first > begun)
        });
        self.waits.push((fault, Duration::from_nanos(next - begun)));
        thread::sleep(MS(rng.u64(0..300)));
        let process = &mut self.processes[leader];
        match fault {
            Fault::Stop => process.worker.thaw(),
            Fault::Kill => process.restart(),
            Fault::CutOff => process.proxies.iter().for_each(Proxy::heal),
            Fault::Restart => {}
        }
        thread::sleep(MS(rng.u64(0..300)));
    }

    /// Returns all terms, by their first moments.
    fn terms(&self) -> Vec<Term> {
        let mut terms: Vec<_> = self.processes.iter().flat_map(Process::terms).collect();
        terms.sort();
        terms
    }

    /// Returns the pairs of terms of which one begins before an earlier one has ended.
    fn overlaps(&self) -> Vec<[Term; 2]> {
        let terms = self.terms();
        let longest = terms.iter().scan(terms[0], |longest, term| {
            let before = *longest;
            *longest = [before, *term].into_iter().max_by_key(|it| it.last)?;
            Some([before, *term])
        });
        let overlaps = longest
            .skip(1)
            .filter(|[before, term]| term.first <= before.last);
        overlaps.collect()
    }

    fn print_waits(&mut self) {
        self.waits.sort();
        for waits in self.waits.chunk_by(|(one, _), (other, _)| one == other) {
            let at = |part: f64| waits[((waits.len() - 1) as f64 * part) as usize].1;
            println!(
                "{:?}: {} rounds, a new leader after {:?} (median), {:?} (9 of 10), {:?} (longest)",
                waits[0].0,
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
