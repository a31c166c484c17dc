use std::{
    sync::{Mutex, mpsc::Sender},
    thread,
    time::{Duration, Instant},
};

use redlock_kit::{Link, Proxy, Worker};

use crate::{
    Result,
    crew::Crew,
    fault::{Fault, Kind},
    run::News,
    support::{MS, bed::Bed as Masters},
    topology::MAX_TTL,
};

/// How long foreign clients stand still after a node came back without its locks.
const FORGETTING: Duration = MAX_TTL.saturating_add(Duration::from_millis(200));

/// Injects faults into nodes and workers.
pub(crate) struct Faults<'a> {
    masters: &'a Masters,
    crew: &'a Crew,
    /// How many restarts the foreign clients must not see. They know of no quarantine.
    hidden: Mutex<usize>,
}

impl<'a> Faults<'a> {
    pub(crate) fn new(masters: &'a Masters, crew: &'a Crew) -> Self {
        Self {
            masters,
            crew,
            hidden: Mutex::default(),
        }
    }

    /// Carries out a plan, and then waits for the end of the run.
    pub(crate) fn carry_out(
        &self,
        plan: &[Fault],
        length: Duration,
        inbox: &Sender<News>,
    ) -> Result<()> {
        let start = Instant::now();
        let sleep_until =
            |at: Duration| thread::sleep((start + at).saturating_duration_since(Instant::now()));
        thread::scope(|scope| {
            let mut causes = Vec::new();
            for fault in plan {
                sleep_until(fault.at);
                inbox.send(News::Fault(fault.clone()))?;
                causes.push(scope.spawn(|| self.cause(fault)));
            }
            sleep_until(length);
            let mut outcomes = causes.into_iter().map(|it| it.join().expect("no panic"));
            outcomes.try_for_each(|it| it)
        })
    }

    fn cause(&self, fault: &Fault) -> Result<()> {
        let is_hidden = fault.kind == Kind::Restart;
        if is_hidden {
            let mut hidden = self.hidden.lock().expect("no panic");
            *hidden += 1;
            self.crew.foreign().for_each(Worker::freeze);
        }
        for victim in &fault.victims {
            self.begin(fault, *victim);
        }
        thread::sleep(fault.length);
        for victim in &fault.victims {
            self.end(fault.kind, *victim)?;
        }
        if is_hidden {
            thread::sleep(FORGETTING);
            let mut hidden = self.hidden.lock().expect("no panic");
            *hidden -= 1;
            if *hidden == 0 {
                self.crew.foreign().for_each(Worker::thaw);
            }
        }
        Ok(())
    }

    fn begin(&self, fault: &Fault, victim: usize) {
        if fault.kind == Kind::StopWorker {
            return self.crew.worker(victim).freeze();
        }
        let node = self.masters.servers.get(victim);
        let proxy = &self.masters.proxies[victim];
        let run = |command: &[&str]| drop(self.masters.cli(victim).run(command));
        let (requests, replies) = (proxy.requests(), proxy.replies());
        match fault.kind {
            Kind::Freeze => node.freeze(),
            Kind::Crash | Kind::Restart | Kind::PowerCut => node.kill(),
            Kind::Delay => {
                // From almost none to longer than any timeout, in proportion to the fault's duration.
                let delay = (fault.length / 10).min(MS(200));
                requests.delay(delay);
                replies.delay(delay);
            }
            Kind::HoldRequests => requests.hold(),
            Kind::HoldReplies => replies.hold(),
            Kind::LoseRequests => requests.lose(),
            Kind::LoseReplies => replies.lose(),
            Kind::BlackHole => {
                proxy.ignore();
                [requests, replies].into_iter().for_each(Link::lose);
            }
            Kind::Reset => proxy.reset(),
            Kind::Strand => requests.strand(),
            Kind::PauseWrites => {
                let pause = fault.length.as_millis().to_string();
                run(&["CLIENT", "PAUSE", &pause, "WRITE"]);
            }
            Kind::FlushScripts => run(&["SCRIPT", "FLUSH"]),
            Kind::Forget => run(&["FLUSHALL"]),
            // These are no faults of independent masters.
            kind => debug_assert!(false, "{kind:?}"),
        }
    }

    fn end(&self, kind: Kind, victim: usize) -> Result<()> {
        let node = self.masters.servers.get(victim);
        match kind {
            Kind::StopWorker => self.crew.worker(victim).thaw(),
            Kind::Freeze => node.thaw(),
            Kind::Crash | Kind::Restart | Kind::PowerCut => node.restart()?,
            Kind::Reset | Kind::PauseWrites | Kind::FlushScripts | Kind::Forget => {}
            // A node has one fault at a time, so this heals no other one.
            _ => Proxy::heal(&self.masters.proxies[victim]),
        }
        Ok(())
    }
}
