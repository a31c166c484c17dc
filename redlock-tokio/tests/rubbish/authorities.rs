//! Sentinels and cluster nodes that say what makes no sense, say it too often, or say it at great length.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use crate::support::{
    MS, eventually,
    fake::{Act, Fake, Moment, bulk, is_one_of},
    panics,
};
use redlock_tokio::{Durability, NodeState, Redlock, RedlockBuilder};

const GROUP: &str = "orders";
const WINDOW: Duration = Duration::from_millis(300);

/// What a fake sentinel says of the group.
#[derive(Clone)]
struct Said {
    id: String,
    ip: String,
    port: String,
    epoch: String,
    /// The ids of the others, with their hosts and ports.
    others: Vec<(String, String, u16)>,
}

fn id(number: usize) -> String {
    format!("{number:040x}")
}

fn list(fields: &[&str]) -> Vec<u8> {
    let mut text = format!("*{}\r\n", fields.len()).into_bytes();
    for field in fields {
        text.extend(bulk(field.as_bytes()));
    }
    text
}

impl Said {
    fn answer(&self, command: &[Vec<u8>]) -> Option<Vec<u8>> {
        if !is_one_of(command, &["SENTINEL"]) {
            return None;
        }
        Some(match command[1].to_ascii_uppercase().as_slice() {
            b"MYID" => bulk(self.id.as_bytes()),
            b"MASTER" => list(&[
                "ip",
                &self.ip,
                "port",
                &self.port,
                "config-epoch",
                &self.epoch,
                "role-reported",
                "master",
                "role-reported-time",
                "0",
            ]),
            _ => {
                let mut text = format!("*{}\r\n", self.others.len()).into_bytes();
                for (id, ip, port) in &self.others {
                    let port = port.to_string();
                    text.extend(list(&["runid", id, "ip", ip, "port", &port]));
                }
                text
            }
        })
    }
}

/// A fake master, and fake sentinels that name it.
struct Scene {
    master: Fake,
    sentinels: Vec<Fake>,
    said: Arc<Mutex<Vec<Said>>>,
    /// How many questions each sentinel got.
    asked: Arc<Vec<AtomicUsize>>,
}

impl Scene {
    fn new(count: usize) -> Self {
        let master = Fake::spawn();
        let sentinels: Vec<_> = (0..count).map(|_| Fake::spawn()).collect();
        let place = |fake: &Fake| {
            let address = fake.address();
            let (ip, port) = address.rsplit_once(':').unwrap();
            (ip.to_owned(), port.parse::<u16>().unwrap())
        };
        let (ip, port) = place(&master);
        let said = |number: usize| Said {
            id: id(number),
            ip: ip.clone(),
            port: port.to_string(),
            epoch: "1".into(),
            others: (0..count)
                .filter(|other| *other != number)
                .map(|other| {
                    let (ip, port) = place(&sentinels[other]);
                    (id(other), ip, port)
                })
                .collect(),
        };
        let said = Arc::new(Mutex::new((0..count).map(said).collect::<Vec<_>>()));
        let asked: Arc<Vec<_>> = Arc::new((0..count).map(|_| AtomicUsize::new(0)).collect());
        for (number, fake) in sentinels.iter().enumerate() {
            let (said, asked) = (Arc::clone(&said), Arc::clone(&asked));
            fake.behave(move |moment| match moment {
                Moment::Asked(command) => {
                    let answer = said.lock().unwrap()[number].answer(command)?;
                    if command[1].eq_ignore_ascii_case(b"MASTER") {
                        asked[number].fetch_add(1, SeqCst);
                    }
                    Some(vec![Act::Say(answer)])
                }
                Moment::Accepted => None,
            });
        }
        Self {
            master,
            sentinels,
            said,
            asked,
        }
    }

    fn change(&self, change: impl Fn(&mut Said)) {
        self.said.lock().unwrap().iter_mut().for_each(change);
    }

    fn builder(&self) -> RedlockBuilder {
        let sentinels: Vec<_> = self.sentinels.iter().map(Fake::address).collect();
        Redlock::builder().nodes(format!("redis+sentinel://{}/{GROUP}", sentinels.join(",")))
    }

    fn asked(&self, number: usize) -> usize {
        self.asked[number].load(SeqCst)
    }
}

async fn client(builder: RedlockBuilder) -> Redlock {
    builder
        .durability(Durability::AssumedForTests)
        .confirmation_window(WINDOW)
        .node_timeout(MS(500))
        .build()
        .await
        .unwrap()
}

fn state(redlock: &Redlock) -> NodeState {
    redlock.nodes().remove(0).state
}

async fn votes(redlock: &Redlock) {
    eventually("it votes", || state(redlock) == NodeState::Voting).await;
}

/// Odd words cost the vote, and no more: with the next sane answer, such as the largest epoch, the master votes.
#[tokio::test(flavor = "multi_thread")]
async fn words_that_make_no_sense_cost_the_vote_until_they_do() {
    panics::watch();
    let scene = Scene::new(3);
    scene.change(|said| said.epoch = u64::MAX.to_string());
    let redlock = client(scene.builder()).await;
    votes(&redlock).await;
    let sane = scene.said.lock().unwrap().clone();
    let long = "x".repeat(100_000);
    for (ip, port, epoch) in [
        ("", "6379", "1"),
        ("10.0.0.1", "0", "2"),
        ("10.0.0.1", "-1", "2"),
        ("10.0.0.1", "65536", "2"),
        ("a b", "6379", "2"),
        ("a]b", "6379", "2"),
        ("[", "6379", "2"),
        (":", "6379", "2"),
        ("a@b/c?d#e", "6379", "2"),
        (&long, "6379", "2"),
        ("\u{0}", "6379", "2"),
        ("::::::::::::::::::", "1", "2"),
        ("127.0.0.1", "1", "18446744073709551616"),
        ("127.0.0.1", "1", "-1"),
        ("127.0.0.1", "1", ""),
    ] {
        scene.change(|said| {
            said.ip = ip.into();
            said.port = port.into();
            said.epoch = epoch.into();
        });
        eventually("it has no vote", || state(&redlock) != NodeState::Voting).await;
        let text = state(&redlock).to_string();
        assert!(text.len() < 2000, "{} bytes", text.len());
        *scene.said.lock().unwrap() = sane.clone();
        votes(&redlock).await;
    }
    assert_eq!(panics::count(), 0);
}

/// A sentinel that publishes switches without end makes the client ask more often, but not without end.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_switches_is_no_flood_of_questions() {
    let scene = Scene::new(3);
    let published = [
        b">3\r\n".to_vec(),
        bulk(b"message"),
        bulk(b"+switch-master"),
        bulk(b"orders 10.0.0.1 1 10.0.0.2 2"),
    ];
    scene.sentinels[0].be_odd_at(&["SUBSCRIBE"], &[Act::Repeat(MS(1), published.concat())]);
    let redlock = client(scene.builder()).await;
    votes(&redlock).await;
    let before = scene.asked(1);
    let time = Duration::from_secs(2);
    tokio::time::sleep(time).await;
    let questions = scene.asked(1) - before;
    let least = time.as_millis() / (WINDOW / 3).as_millis();
    let most = usize::try_from(10 * least).unwrap();
    assert!(questions <= most, "{questions} questions in {time:?}");
    assert!(scene.sentinels[0].streamed() > 0, "there was a flood");
    votes(&redlock).await;
}

/// The master moves between two servers as often as the sentinels are asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_moves_back_and_forth_never_votes_and_is_rarely_connected_to() {
    panics::watch();
    let scene = Scene::new(3);
    let other = Fake::spawn();
    let ports =
        [&scene.master, &other].map(|it| it.address().rsplit_once(':').unwrap().1.to_owned());
    let redlock = scene
        .builder()
        .ttl(Duration::from_secs(2))
        .wait(Duration::ZERO)
        .confirmation_window(WINDOW)
        .node_timeout(MS(500))
        .build()
        .await
        .unwrap();
    let mut epoch = 1;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(6) {
        epoch += 1;
        scene.change(|said| {
            said.epoch = epoch.to_string();
            said.port.clone_from(&ports[epoch % 2]);
        });
        assert!(redlock.lock("k").await.is_err());
        tokio::time::sleep(MS(100)).await;
    }
    let connections = scene.master.connections() + other.connections();
    assert!(connections < 150, "{connections}");
    assert_eq!(panics::count(), 0);
    redlock.ready(Duration::from_secs(20)).await.unwrap();
}

/// A panic of the user's function ends neither the watch of the sentinels nor the lane.
#[tokio::test]
async fn a_function_that_panics_at_an_address_costs_the_vote_until_it_does_not() {
    let scene = Scene::new(3);
    let fails = Arc::new(AtomicBool::new(false));
    let failing = Arc::clone(&fails);
    let builder = scene.builder().map_addresses(move |_| {
        assert!(!failing.load(SeqCst), "no translation");
        None
    });
    let redlock = client(builder).await;
    votes(&redlock).await;
    fails.store(true, SeqCst);
    scene.change(|said| said.epoch = "2".into());
    eventually("the panic is named", || {
        state(&redlock).to_string().contains("panicked at")
    })
    .await;
    fails.store(false, SeqCst);
    votes(&redlock).await;
}
