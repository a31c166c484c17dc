//! The order among processes that wait for a key. Over nodes in memory, by tokio's clock.

use std::{
    future::{IntoFuture, ready},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::FutureExt;
use redlock_tokio::{
    Lock, LockError, LockGuard, LockOptions, MemoryNode, NodeError, Redlock,
    node::{Command, FreedNotifier, LineAction, LineAnswer, Node, Session},
};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep, timeout},
};

use crate::support::{
    MS, assert_says, built,
    in_memory::{blocked, fleet, hold, keep_busy, over, set_down, settle, three_nodes},
    places::{asking, join},
    scripted::{Reports, Scripted, out_of_memory, over_custom},
};

#[tokio::test(start_paused = true)]
async fn processes_get_a_lock_in_the_order_in_which_they_came() {
    let (_, processes) = fleet::<9>().await;
    let held = processes[8].lock("k").await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for number in [3, 1, 7, 0, 5, 2, 6, 4] {
        let lock = processes[number].lock("k").options(patient());
        let order = Arc::clone(&order);
        waiting.push(tokio::spawn(async move {
            let guard = lock.await.unwrap();
            order.lock().unwrap().push(number);
            sleep(MS(10)).await;
            guard.release().await;
        }));
        sleep(MS(1)).await;
    }
    sleep(Duration::from_secs(7)).await;
    let released = Instant::now();
    held.release().await;
    for it in waiting {
        it.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [3, 1, 7, 0, 5, 2, 6, 4]);
    let took = released.elapsed();
    assert!(took < MS(100), "{took:?} for eight holds of 10 ms");
}

#[tokio::test(start_paused = true)]
async fn an_inspection_names_those_that_stand_in_the_line() {
    let kinds: [fn(&Redlock) -> Lock; 3] = [
        |it| it.lock("k"),
        |it| it.rw_lock("k").write(),
        |it| it.semaphore("k", 1).acquire(),
    ];
    for lock in kinds {
        let nodes = three_nodes();
        let client = async |name| over(&nodes).client_name(name).build().await.unwrap();
        let holder = client("web-1").await;
        let held = lock(&holder).await.unwrap();
        for name in ["web-3", "web-2"] {
            blocked(lock(&client(name).await).options(patient())).await;
        }
        let inspection = holder.inspect("k").await.unwrap();
        let names = inspection.waiting().iter().flatten().map(|it| &**it);
        assert!(names.eq(["web-3", "web-2"]), "{held:?}: {inspection}");
        assert!(inspection.to_string().contains("in line: web-3, web-2"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_process_lets_another_one_in_when_its_streak_is_over() {
    let (_, processes) = fleet::<2>().await;
    let _busy = busy(&processes[0]);
    sleep(MS(300)).await;
    drop(served(wait(&processes[1]), MS(100)).await);
}

#[tokio::test(start_paused = true)]
async fn the_next_request_of_a_process_takes_its_place_over() {
    let (_, processes) = fleet::<3>().await;
    let held = processes[0].lock("k").await.unwrap();
    let first = tokio::spawn(processes[1].lock("k").wait(MS(500)).into_future());
    let second = wait(&processes[1]);
    sleep(MS(100)).await;
    let other = wait(&processes[2]);
    assert!(first.await.unwrap().is_err(), "after 500 ms");
    settle().await;
    held.release().await;
    let second = served(second, MS(1)).await;
    settle().await;
    assert!(!other.is_finished());
    second.release().await;
    drop(served(other, MS(1)).await);
}

/// The request is gone whose place the node is about to tell.
#[tokio::test(start_paused = true)]
async fn a_place_that_was_asked_for_by_another_request_is_asked_for_again() {
    let (nodes, [holder]) = fleet().await;
    let held = holder.lock("k").await.unwrap();
    let distant = nodes.iter().map(|it| Scripted::late(it, MS(5)));
    let distant = built(over_custom(distant)).await;
    let first = wait(&distant);
    let second = wait(&distant);
    // The first answers have come, and the answer of the line is on its way.
    sleep(MS(7)).await;
    first.abort();
    sleep(MS(50)).await;
    held.release().await;
    drop(served(second, MS(50)).await);
}

/// All wait in one line, and the holder's process asks whether others wait before it goes on.
#[tokio::test(start_paused = true)]
async fn nobody_is_left_with_a_lock_when_no_node_tells_whether_others_wait() {
    let (nodes, [redlock]) = fleet().await;
    let held = redlock.lock("k").await.unwrap();
    let waiting = wait(&redlock);
    sleep(MS(100)).await;
    set_down(&nodes, true);
    sleep(MS(1)).await;
    drop(held);
    sleep(MS(200)).await;
    set_down(&nodes, false);
    drop(served(waiting, MS(15_000)).await);
}

/// Those that are killed cost nothing if the holder has stood in the line itself: it calls the next, and learns that nobody
/// hears.
#[tokio::test(start_paused = true)]
async fn row_64_processes_that_die_in_line_cost_those_behind_them_four_seconds_together() {
    for (is_killed, has_waited, bound) in [
        (true, true, MS(50)),
        (true, false, MS(4000)),
        (false, true, MS(4000)),
        (false, false, MS(4000)),
    ] {
        for count in [1, 8, 32] {
            let (nodes, processes) = fleet::<3>().await;
            let first = processes[1].lock("k").await.unwrap();
            let holder = has_waited.then(|| wait(&processes[0]));
            settle().await;
            let ghosts = ghosts(&nodes, count).await;
            let waiting = wait(&processes[2]);
            sleep(MS(2300)).await;
            let held = match holder {
                Some(holder) => {
                    first.release().await;
                    holder.await.unwrap().unwrap()
                }
                None => first,
            };
            settle().await;
            let kept = (!is_killed).then_some(ghosts);
            sleep(MS(500)).await;
            let released = Instant::now();
            held.release().await;
            drop(served(waiting, bound).await);
            let took = released.elapsed();
            let costs = bound > MS(50);
            assert_eq!(took > MS(50), costs, "{took:?}: {count}, {is_killed}");
            drop(kept);
        }
    }
}

/// Clients of another kind have the key all the time, so nobody sees it lie free.
#[tokio::test(start_paused = true)]
async fn row_64_a_process_moves_up_although_the_key_is_always_taken() {
    let (nodes, [process, next]) = fleet().await;
    hold(&nodes, "k", Duration::from_secs(3600));
    let _stopped = ghosts(&nodes, 8).await;
    let _waiting = wait(&process);
    settle().await;
    let _next = wait(&next);
    settle().await;
    assert_eq!(process.processes_ahead("k"), Some(8));
    sleep(MS(4000)).await;
    assert_eq!(process.processes_ahead("k"), Some(0));
    sleep(Duration::from_secs(100)).await;
    assert_eq!(process.processes_ahead("k"), Some(0), "it beats");
}

#[tokio::test(start_paused = true)]
async fn row_64_a_writer_follows_one_that_has_died_although_readers_go_on() {
    let (nodes, processes) = fleet::<3>().await;
    let readers: JoinSet<()> = (0..2)
        .map(|reader| {
            let process = processes[reader].clone();
            async move { keep_busy(|| process.rw_lock("k").read(), MS(300 + reader as u64)).await }
        })
        .collect();
    settle().await;
    let _stopped = ghosts(&nodes, 1).await;
    let writer = processes[2].rw_lock("k").write().wait(MS(5000));
    let waited = Instant::now();
    drop(writer.await.unwrap());
    assert!(waited.elapsed() > MS(2000), "{:?}", waited.elapsed());
    drop(readers);
}

#[tokio::test(start_paused = true)]
async fn row_64_a_candidate_follows_one_that_has_died_with_the_leader() {
    let (nodes, [candidate]) = fleet().await;
    hold(&nodes, "e", MS(3000));
    let _stopped = ghosts_of(&nodes, "e", 6).await;
    let election = candidate.elect("e");
    let (sender, leads) = tokio::sync::oneshot::channel();
    let sender = Mutex::new(Some(sender));
    let _running = tokio::spawn(election.run(async move |_| {
        sender.lock().unwrap().take().map(|it| it.send(()));
        std::future::pending::<()>().await;
    }));
    timeout(MS(4000), leads).await.unwrap().unwrap();
}

/// Processes that assume one permit see it taken. One that assumes three asks for another one.
#[tokio::test(start_paused = true)]
async fn row_64_processes_that_count_with_fewer_permits_keep_nobody_from_the_others() {
    let (_, processes) = fleet::<6>().await;
    let permit = |process: usize, permits| {
        let lock = processes[process].semaphore("k", permits).acquire();
        lock.options(patient())
    };
    let _held = permit(0, 1).await.unwrap();
    let mut waiting = Vec::new();
    for process in 1..5 {
        waiting.push(blocked(permit(process, 1)).await);
    }
    let third = tokio::spawn(permit(5, 3).into_future());
    drop(served(third, MS(100)).await);
}

/// A request for two keys waits for one of them. It does not keep others from the other key, and has its turn although both
/// are busy.
#[tokio::test(start_paused = true)]
async fn row_64_a_request_for_two_keys_and_requests_for_one_of_them_let_each_other_in() {
    let (_, processes) = fleet::<4>().await;
    let both = |process: usize| {
        let lock = processes[process].lock_all(["a", "b"]);
        tokio::spawn(lock.options(patient()).into_future())
    };
    let held = processes[3].lock("b").await.unwrap();
    let waiting = [both(0), both(1)];
    settle().await;
    let entries = Arc::new(AtomicUsize::new(0));
    let singles: JoinSet<()> = processes[2..]
        .iter()
        .map(|process| {
            let (process, entries) = (process.clone(), Arc::clone(&entries));
            async move {
                loop {
                    let _guard = process.lock("a").options(patient()).await.unwrap();
                    entries.fetch_add(1, Relaxed);
                    sleep(MS(5)).await;
                }
            }
        })
        .collect();
    sleep(MS(1000)).await;
    let entries = entries.load(Relaxed);
    assert!(entries > 50, "{entries} in a second");
    drop(singles);
    drop(held);
    for it in waiting {
        drop(served(it, MS(100)).await);
    }
    let busy: JoinSet<()> = [("a", 2), ("a", 3), ("b", 2), ("b", 3)]
        .into_iter()
        .map(|(key, process)| {
            let process = processes[process].clone();
            async move { keep_busy(|| process.lock(key), MS(20 + key.len() as u64)).await }
        })
        .collect();
    sleep(MS(500)).await;
    drop(served(both(0), MS(8000)).await);
    drop(busy);
}

/// A process that cannot reach the node of the line stands in another one, and does not keep the key to itself.
#[tokio::test(start_paused = true)]
async fn row_64_a_process_that_stands_elsewhere_lets_the_others_in() {
    for unreachable in 0..3 {
        let (nodes, [process]) = fleet().await;
        let own = nodes.iter().enumerate().map(|(index, node)| {
            let scripted = Scripted::late(node, MS(1));
            let refuses = index == unreachable;
            scripted.connect(move || {
                let gone = || NodeError::Unreachable("no route".into());
                ready(if refuses { Err(gone()) } else { Ok(()) }).boxed()
            })
        });
        let elsewhere = built(over_custom(own).poller_share(0)).await;
        let _busy = busy(&elsewhere);
        sleep(MS(300)).await;
        for _ in 0..20 {
            drop(served(wait(&process), MS(300)).await);
        }
    }
}

/// A process whose sessions call nobody is slow to learn that it is the first. Those that are called do not wait for it.
#[tokio::test(start_paused = true)]
async fn row_64_a_process_that_is_not_called_holds_up_nobody_and_has_its_turn() {
    let (nodes, [holder, process]) = fleet().await;
    let held = holder.lock("k").await.unwrap();
    let deaf = nodes
        .iter()
        .map(|node| Scripted::obeying(node).reports(Reports::NoneButLines));
    let deaf = built(over_custom(deaf)).await;
    // It may see the free key by chance before the other one is called.
    let first = tokio::spawn(wait(&deaf).map(|it| drop(it.unwrap().unwrap())));
    settle().await;
    let waiting = wait(&process);
    sleep(MS(500)).await;
    held.release().await;
    let second = served(waiting, MS(5)).await;
    sleep(MS(100)).await;
    second.release().await;
    timeout(MS(500), first).await.expect("in time").unwrap();
    let _busy = [busy(&holder), busy(&process)];
    sleep(MS(500)).await;
    drop(served(wait(&deaf), MS(2500)).await);
}

/// It beats, and could not take the lock for which it keeps others waiting.
#[tokio::test(start_paused = true)]
async fn row_64_a_process_without_a_majority_leaves_the_line() {
    let (nodes, [holder, process]) = fleet().await;
    let _held = holder.lock("k").await.unwrap();
    let (refused, is_refused) = refused_if_wanted(&nodes).await;
    let _first = wait(&refused);
    settle().await;
    let _waiting = wait(&process);
    settle().await;
    assert_eq!(process.processes_ahead("k"), Some(1));
    is_refused.store(true, Relaxed);
    refused.try_lock("other").await.unwrap_err();
    sleep(MS(2500)).await;
    assert_eq!(process.processes_ahead("k"), Some(0));
}

/// Its request for another place was not sent, of which it learns at once: it asks nothing else of the node.
#[tokio::test(start_paused = true)]
async fn row_64_a_process_that_has_a_majority_again_is_in_the_line_soon() {
    let (nodes, [holder, process]) = fleet().await;
    let held = holder.lock("k").await.unwrap();
    let (refused, is_refused) = refused_if_wanted(&nodes).await;
    let first = wait(&process);
    settle().await;
    let behind = wait(&refused);
    settle().await;
    is_refused.store(true, Relaxed);
    refused.try_lock("other").await.unwrap_err();
    sleep(MS(2500)).await;
    is_refused.store(false, Relaxed);
    held.release().await;
    drop(served(first, MS(5)).await);
    drop(served(behind, MS(2500)).await);
}

/// Returns a client whose nodes refuse its commands while that is set.
async fn refused_if_wanted(nodes: &[MemoryNode]) -> (Redlock, Arc<AtomicBool>) {
    let is_refused = Arc::new(AtomicBool::new(false));
    let own = nodes.iter().map(|node| {
        let is_refused = Arc::clone(&is_refused);
        let execute = move |node: &mut MemoryNode, batch: &[Command]| {
            if is_refused.load(Relaxed) {
                let refusals = batch.iter().map(|_| Err(out_of_memory()));
                return ready(Ok(refusals.collect())).boxed();
            }
            node.execute(batch)
        };
        Scripted::new(node, execute).reports(Reports::ArriveLikeCalls)
    });
    (built(over_custom(own)).await, is_refused)
}

#[tokio::test(start_paused = true)]
async fn a_process_knows_its_place() {
    let (_, processes) = fleet::<3>().await;
    for _ in 0..3 {
        let guard = processes[2].lock("k").await.unwrap();
        sleep(MS(1000)).await;
        guard.release().await;
    }
    let _held = processes[0].lock("k").await.unwrap();
    let ahead = || processes[1..].iter().map(|it| it.processes_ahead("k"));
    assert!(ahead().all(|it| it.is_none()), "nobody waits");
    let mut waiting = Vec::new();
    for (process, wait) in processes[1..].iter().zip([60, 2]) {
        let lock = process.lock("k").wait(Duration::from_secs(wait));
        waiting.push(tokio::spawn(lock.into_future()));
        settle().await;
    }
    assert!(ahead().eq([Some(0), Some(1)]));
    let of_both = Some(MS(2000));
    assert_eq!(processes[2].expected_wait("k"), of_both);
    let error = waiting.pop().unwrap().await.unwrap().unwrap_err();
    assert_eq!(error.attempts().unwrap().ahead, Some(1));
    assert_says(&error, "number 2 in the line");
    assert_eq!(processes[2].processes_ahead("k"), None);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_called_knows_its_place() {
    let (_, processes) = fleet::<4>().await;
    let permit = |process: usize| processes[process].semaphore("k", 2).acquire().wait(MS(500));
    let _held = [permit(0).await, permit(0).await];
    for gives_up in [false, true] {
        let first = blocked(permit(1)).await;
        let _second = blocked(permit(2)).await;
        let third = blocked(permit(3)).await;
        if gives_up {
            first.abort();
        }
        let error = third.await.unwrap().unwrap_err();
        let ahead = error.attempts().unwrap().ahead;
        assert_eq!(ahead, Some(2 - u32::from(gives_up)));
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_end_without_the_lock_leave_no_place_behind() {
    let (_, processes) = fleet::<4>().await;
    let held = processes[0].lock("k").await.unwrap();
    assert!(processes[1].try_lock("k").await.is_err());
    assert!(processes[1].lock("k").wait(MS(20)).await.is_err());
    let dropped = blocked(processes[1].lock("k").options(patient())).await;
    let shut_down = blocked(processes[2].lock("k").options(patient())).await;
    let waiting = blocked(processes[3].lock("k").options(patient())).await;
    dropped.abort();
    processes[2].shutdown(None).await;
    assert!(shut_down.await.unwrap().is_err());
    held.release().await;
    drop(served(waiting, MS(1)).await);
}

/// Beside tasks that want the key all the time, it lies free for clients that poll. The control keeps the lock to itself.
#[tokio::test(start_paused = true)]
async fn row_47_a_busy_process_leaves_the_key_free_for_clients_that_poll() {
    for (poller_share, expected) in [(40, MS(0)..MS(100)), (0, MS(2900)..Duration::MAX)] {
        let nodes = three_nodes();
        let redlock = built(over(&nodes).poller_share(poller_share)).await;
        let _busy = busy(&redlock);
        let (mut last_free, mut longest) = (Instant::now(), Duration::ZERO);
        for _ in 0..3000 {
            sleep(MS(1)).await;
            if !nodes.iter().any(|it| it.contains("k")) {
                last_free = Instant::now();
            }
            longest = longest.max(last_free.elapsed());
        }
        assert!(expected.contains(&longest), "{longest:?}");
    }
}

/// A process that came while the node of the line was away waits at another node. With its next look it returns to the first.
#[tokio::test(start_paused = true)]
async fn there_is_one_line_again_soon_after_the_return_of_its_node() {
    // The process that waits is the first, or stands behind another.
    for ahead in 0..=1 {
        let (nodes, [holder, process, other]) = fleet().await;
        let _held = holder.lock("k").await.unwrap();
        let _other = (ahead > 0).then(|| wait(&other));
        settle().await;
        let first = wait(&process);
        settle().await;
        let usual = standing(&nodes).await;
        let node = usual.iter().position(|it| *it == ahead + 1).unwrap();
        first.abort();
        settle().await;

        nodes[node].set_down(true);
        // It finds out with the next request.
        drop(process.lock("other").await.unwrap());
        settle().await;
        let _second = wait(&process);
        settle().await;
        nodes[node].set_down(false);
        let elsewhere = standing(&nodes).await;
        assert_eq!(elsewhere[node], ahead);
        assert_eq!(elsewhere.iter().sum::<u32>(), ahead + 1);
        sleep(Duration::from_secs(15)).await;
        assert_eq!(standing(&nodes).await, usual);
    }
}

/// A node that loses its keys loses its lines, too. The processes take their places again, with their numbers.
#[tokio::test(start_paused = true)]
async fn the_order_survives_the_loss_of_a_line() {
    let (nodes, processes) = fleet::<4>().await;
    let held = processes[0].lock("k").await.unwrap();
    let mut waiting = Vec::new();
    for process in processes[1..].iter().rev() {
        waiting.push(wait(process));
        sleep(MS(1)).await;
    }
    nodes.iter().for_each(MemoryNode::clear);
    // Those that were the first at a time have asked again.
    sleep(MS(2000)).await;
    drop(held);
    for it in waiting {
        drop(served(it, MS(50)).await);
    }
}

/// Those that are called stand apart from those that are not. A process that reconnects may be of the other kind.
#[tokio::test]
async fn a_process_that_is_called_from_now_on_keeps_nobody_waiting_in_its_former_line() {
    let node = MemoryNode::new();
    let mut sessions = Vec::new();
    for member in [1, 2, 1] {
        let mut session = node.connect().await.unwrap();
        if sessions.len() == 2 {
            session.watch(FreedNotifier::new(|_| {}));
        }
        ask(&mut *session, "k", join(member)).await;
        sessions.push(session);
    }
    let standing = ask(&mut *sessions[1], "k", join(2)).await;
    assert!(
        matches!(standing, LineAnswer::Standing(it) if it.ahead == 0),
        "{standing:?}"
    );
}

fn patient() -> LockOptions {
    LockOptions::new().wait(Duration::MAX)
}

/// Lets a process wait for `k`.
fn wait(process: &Redlock) -> JoinHandle<Result<LockGuard, LockError>> {
    let lock = process.lock("k").options(patient());
    tokio::spawn(lock.into_future())
}

/// Returns the lock of a request that must have it by then.
async fn served(request: JoinHandle<Result<LockGuard, LockError>>, within: Duration) -> LockGuard {
    let served = timeout(within, request).await;
    served.expect("in time").unwrap().unwrap()
}

/// Has eight tasks of a process want `k` all the time.
fn busy(process: &Redlock) -> JoinSet<()> {
    let task = |_| {
        let process = process.clone();
        async move { keep_busy(|| process.lock("k"), MS(1)).await }
    };
    (0..8).map(task).collect()
}

/// Asks about the line of a key.
async fn ask(session: &mut dyn Session, key: &str, action: LineAction) -> LineAnswer {
    session.line(&[asking(key, action)]).await.unwrap()[0]
}

/// Takes places at the end of the line of `k` for so many processes, on each node. They never move, as if they were stopped.
/// Once the sessions are dropped they are killed: nobody hears a call.
async fn ghosts(nodes: &[MemoryNode], count: u64) -> Vec<Box<dyn Session>> {
    ghosts_of(nodes, "k", count).await
}

async fn ghosts_of(nodes: &[MemoryNode], key: &str, count: u64) -> Vec<Box<dyn Session>> {
    let mut sessions = Vec::new();
    for node in nodes {
        for number in 0..count {
            let mut session = node.connect().await.unwrap();
            session.watch(FreedNotifier::new(|_| {}));
            ask(&mut *session, key, join(number)).await;
            sessions.push(session);
        }
    }
    sessions
}

/// Returns how many processes stand in the line of `k` at each node.
async fn standing(nodes: &[MemoryNode]) -> Vec<u32> {
    let mut standing = Vec::new();
    for node in nodes {
        let mut session = node.connect().await.unwrap();
        match ask(&mut *session, "k", LineAction::Count).await {
            LineAnswer::Waiting(count) => standing.push(count),
            other => panic!("{other:?}"),
        }
    }
    standing
}

/// A node that answers commands is not silent, whatever becomes of requests about lines.
#[tokio::test(start_paused = true)]
async fn locks_are_kept_on_nodes_that_never_answer_about_lines() {
    let nodes = three_nodes();
    let mute = nodes.iter().map(Scripted::obeying);
    let mute = mute.map(|it| it.reports(Reports::ArriveWithoutLines));
    let redlock = built(over_custom(mute)).await;
    let own = redlock.lock("own").await.unwrap();
    hold(&nodes, "taken", Duration::from_secs(600));
    let wait = Duration::from_secs(300);
    let _waiting = blocked(redlock.lock("taken").wait(wait)).await;
    sleep(Duration::from_secs(30)).await;
    assert!(own.is_valid(), "it was lost: {:?}", redlock.nodes());
}
