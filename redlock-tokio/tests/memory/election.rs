//! Elections over nodes in memory, by tokio's clock.

use std::{
    future::pending,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::{FutureExt, StreamExt};
use redlock_tokio::{
    Candidacy, Candidate, Clock, LockError, LockOptions, Redlock, Timestamp, Verdict,
    errors::KeyError,
};
use tokio::{
    sync::Notify,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::support::{
    MS, built,
    in_memory::{all_empty, client, fleet, over, set_down, settle, three_nodes},
};

/// A candidate that leads for as long as it can.
fn campaign(redlock: &Redlock) -> (Candidate, JoinHandle<Result<(), LockError>>) {
    let election = redlock.elect("e");
    let candidate = election.candidate();
    (
        candidate,
        tokio::spawn(election.run(async |_| pending().await)),
    )
}

#[tokio::test(start_paused = true)]
async fn observers_ask_every_10_ms_and_are_told_of_each_leader_once() {
    let nodes = three_nodes();
    let [one, two] = ["one", "two"].map(|it| built(over(&nodes).client_name(it)));
    let (one, two) = (one.await, two.await);
    let observer = client(&nodes).await;
    let leaders = observer
        .elect("e")
        .observe(Duration::ZERO)
        .map(|it| match it {
            Ok(Verdict::Held { by, .. }) => by.client_name().unwrap().to_owned(),
            other => format!("{other:?}"),
        });
    let mut leaders = pin!(leaders);
    assert_eq!(leaders.next().await.unwrap(), "Ok(Free)");

    let (mut candidate, leading) = campaign(&one);
    candidate.changed().await;
    let asked = Instant::now();
    assert_eq!(leaders.next().await.unwrap(), "one");
    assert!(asked.elapsed() >= MS(10), "{:?}", asked.elapsed());
    // The leader extends its lock, and that is no news.
    assert!(timeout(MS(20_000), leaders.next()).await.is_err());

    let (_candidate, _campaign) = campaign(&two);
    settle().await;
    leading.abort();
    assert_eq!(leaders.next().await.unwrap(), "two");
    set_down(&nodes, true);
    assert_eq!(leaders.next().await.unwrap(), "Ok(Unknown)");

    let mut unnamed = pin!(observer.elect("").observe(MS(100)));
    assert!(unnamed.next().await.unwrap().is_err());
    assert!(unnamed.next().await.is_none());
    observer.shutdown(None).await;
    let end = timeout(MS(1000), leaders.next()).await;
    assert_eq!(end.expect("it ends"), None);
}

#[tokio::test(start_paused = true)]
async fn one_candidate_leads_without_a_limit_until_it_resigns_or_ends() {
    let nodes = three_nodes();
    let one = built(over(&nodes).client_name("one")).await;
    let other = client(&nodes).await;
    let (mut first, leading) = campaign(&one);
    assert_eq!(first.leader().await, Ok(Verdict::Free));
    assert_eq!(first.changed().await, Candidacy::Leading);
    let (mut second, _campaign) = campaign(&other);
    let leader = second.leader().await.unwrap();
    assert!(matches!(&leader, Verdict::Held { by, .. } if by.client_name() == Some("one")));
    // A third one, in the process of the leader.
    let (third, other_campaign) = campaign(&one);
    second.resign(); // it does not lead
    // Far longer than `max_hold`.
    sleep(Duration::from_secs(3600)).await;
    let candidates = [&first, &second, &third].map(|it| it.candidacy());
    let campaigning = Candidacy::Campaigning;
    assert_eq!(candidates, [Candidacy::Leading, campaigning, campaigning]);
    assert!(second.changed().now_or_never().is_none());
    other_campaign.abort();

    first.resign();
    let resigned = Instant::now();
    assert_eq!(second.changed().await, Candidacy::Leading);
    assert!(resigned.elapsed() < MS(300), "{:?}", resigned.elapsed());
    assert_eq!(first.changed().await, campaigning);
    assert_eq!(third.candidacy(), Candidacy::Ended);
    sleep(MS(60_000)).await;
    assert!(second.leadership().is_some() && first.leadership().is_none());
    second.resign();
    assert_eq!(first.changed().await, Candidacy::Leading);
    leading.abort();
    while !second.is_leader() {
        second.changed().await;
    }
    assert_eq!(first.candidacy(), Candidacy::Ended);
}

#[tokio::test(start_paused = true)]
async fn a_leadership_that_is_lost_ends_the_work_and_begins_another_campaign() {
    let (nodes, [redlock]) = fleet().await;
    let election = redlock.elect("e").options(LockOptions::new().fenced(true));
    let mut candidate = election.candidate();
    let mut terms = 0;
    let leading = tokio::spawn(election.run(async move |leadership| {
        terms += 1;
        if terms <= 3 {
            pending().await
        } else {
            leadership.fencing_token()
        }
    }));
    let mut tokens = Vec::new();
    for _ in 1..=3 {
        while !candidate.is_leader() {
            candidate.changed().await;
        }
        settle().await;
        let leadership = candidate.leadership().unwrap();
        tokens.push(leadership.fencing_token());
        assert!(nodes.iter().all(|node| node.remove("e")));
        candidate.changed().await;
        assert!(!leadership.is_valid());
    }
    tokens.push(leading.await.unwrap().unwrap());
    assert!(tokens.is_sorted() && tokens[0].is_some(), "{tokens:?}");
    assert_eq!(candidate.candidacy(), Candidacy::Ended);
    // It has resigned.
    assert!(all_empty(&nodes));
}

#[tokio::test(start_paused = true)]
async fn a_candidate_campaigns_through_an_outage_and_is_not_told_that_it_ceased_to_lead() {
    let nodes = three_nodes();
    set_down(&nodes, true);
    let redlock = client(&nodes).await;
    let (mut candidate, leading) = campaign(&redlock);
    sleep(MS(600_000)).await;
    assert!(candidate.changed().now_or_never().is_none());
    set_down(&nodes, false);
    assert_eq!(candidate.changed().await, Candidacy::Leading);
    leading.abort();
    let _ = leading.await;
    redlock.shutdown(None).await;
    assert!(all_empty(&nodes));
}

#[tokio::test(start_paused = true)]
async fn an_election_ends_at_a_shutdown_and_for_a_name_that_is_no_key() {
    let (_, [one, other]) = fleet().await;
    let (mut first, _leading) = campaign(&one);
    first.changed().await;
    let (_, waiting) = campaign(&other);
    settle().await;
    other.shutdown(None).await;
    assert_refused!(waiting.await.unwrap(), LockError::ShutDown);
    let outcome = one.elect("").run(async |_| ()).await;
    assert_refused!(outcome, LockError::InvalidKey(KeyError::Empty));
}

/// A process that is stopped sees its clock jump when it goes on. Its tasks run again before the timers notice.
#[tokio::test(start_paused = true)]
async fn a_leader_that_was_stopped_for_too_long_does_not_go_on_with_its_work() {
    let nodes = three_nodes();
    let stopped = Arc::new(AtomicU64::new(0));
    let (zero, pause) = (Instant::now(), Arc::clone(&stopped));
    let clock = Clock::custom(move || {
        let stopped = MS(pause.load(SeqCst));
        Timestamp::ZERO.saturating_add(zero.elapsed() + stopped)
    });
    let redlock = built(over(&nodes).clock(clock)).await;
    let (step, steps) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let election = redlock.elect("e");
    let mut candidate = election.candidate();
    let (next, count) = (Arc::clone(&step), Arc::clone(&steps));
    let _leading = tokio::spawn(election.run(async move |_| {
        loop {
            next.notified().await;
            count.fetch_add(1, SeqCst);
        }
    }));
    candidate.changed().await;
    let go_on = async || {
        step.notify_one();
        settle().await;
        steps.load(SeqCst)
    };
    assert_eq!(go_on().await, 1);
    stopped.store(9000, SeqCst); // not for too long
    assert_eq!((go_on().await, candidate.is_leader()), (2, true));
    stopped.store(30_000, SeqCst);
    assert!(!candidate.is_leader(), "before its task has run");
    assert_eq!((go_on().await, candidate.is_leader()), (2, false));
    while !candidate.is_leader() {
        candidate.changed().await;
    }
    assert!(go_on().await > 2);
}
