use std::{
    sync::mpsc::Sender,
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

/// Injects faults into nodes and workers.
pub(crate) struct Faults<'a> {
    pub(crate) masters: &'a Masters,
    pub(crate) crew: &'a Crew,
}

enum Step {
    Begin,
    End,
    /// All locks that the victims forgot are over.
    Forgotten,
}

/// How long foreign clients stand still after a node came back without its locks.
const FORGETTING: Duration = MAX_TTL.saturating_add(Duration::from_millis(200));

impl Faults<'_> {
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
        let begins = plan.iter().map(|it| (it.at, Step::Begin, it));
        let ends = plan.iter().map(|it| (it.at + it.length, Step::End, it));
        let forgetful = plan.iter().filter(|it| it.kind.needs_quarantine());
        let forgotten = forgetful.map(|it| (it.at + it.length + FORGETTING, Step::Forgotten, it));
        let mut steps: Vec<_> = begins.chain(ends).chain(forgotten).collect();
        let mut quarantines = 0;
        // The sort is stable, so a fault without a duration begins before it ends.
        steps.sort_by_key(|(at, ..)| *at);
        for (at, step, fault) in steps {
            sleep_until(at);
            match step {
                Step::Begin => {
                    inbox.send(News::Fault(fault.clone()))?;
                    if fault.kind.needs_quarantine() {
                        quarantines += 1;
                        self.crew.foreign().for_each(Worker::freeze);
                    }
                    for victim in &fault.victims {
                        self.begin(fault, *victim);
                    }
                }
                Step::End => {
                    for victim in &fault.victims {
                        self.end(fault.kind, *victim)?;
                    }
                }
                Step::Forgotten => {
                    quarantines -= 1;
                    if quarantines == 0 {
                        self.crew.foreign().for_each(Worker::thaw);
                    }
                }
            }
        }
        sleep_until(length);
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
