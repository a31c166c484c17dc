use std::{
    thread,
    time::{Duration, Instant},
};

use redlock_kit::{Link, Proxy};

use crate::{
    Result,
    crew::Crew,
    fault::{Fault, Kind},
    support::{MS, bed::Bed as Masters},
    topology::MAX_TTL,
};

/// How long foreign clients stand still after a node came back without its locks.
const FORGETTING: Duration = MAX_TTL.saturating_add(Duration::from_millis(200));

/// Injects faults into nodes and workers.
pub(crate) struct Faults<'a> {
    pub(crate) masters: &'a Masters,
    pub(crate) crew: &'a Crew,
}

impl Faults<'_> {
    /// Carries out a plan, and then waits for the end of the run.
    pub(crate) fn carry_out(&self, plan: &[Fault], length: Duration) -> Result<()> {
        let start = Instant::now();
        let sleep_until =
            |at: Duration| thread::sleep((start + at).saturating_duration_since(Instant::now()));
        thread::scope(|scope| {
            let mut causes = Vec::new();
            for fault in plan {
                sleep_until(fault.at);
                self.crew.tell(fault.clone());
                if fault.kind.is_of_processes() {
                    self.crew.fail(&fault.victims)?;
                }
                causes.push(scope.spawn(|| self.cause(fault)));
            }
            sleep_until(length);
            let mut outcomes = causes.into_iter().map(|it| it.join().expect("no panic"));
            outcomes.try_for_each(|it| it)
        })
    }

    fn cause(&self, fault: &Fault) -> Result<()> {
        if fault.kind.is_of_processes() {
            thread::sleep(fault.length);
            self.crew.thaw(&fault.victims);
            return Ok(());
        }
        let is_hidden = fault.kind == Kind::Restart;
        if is_hidden {
            self.crew.hide();
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
            self.crew.show();
        }
        Ok(())
    }

    fn begin(&self, fault: &Fault, victim: usize) {
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
            Kind::Freeze => node.thaw(),
            Kind::Crash | Kind::Restart | Kind::PowerCut => node.restart()?,
            Kind::Reset | Kind::PauseWrites | Kind::FlushScripts | Kind::Forget => {}
            // A node has one fault at a time, so this heals no other one.
            _ => Proxy::heal(&self.masters.proxies[victim]),
        }
        Ok(())
    }
}
