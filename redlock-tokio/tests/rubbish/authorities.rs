//! Sentinels and cluster nodes that say what makes no sense, say it too often, or say it at great length.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use crate::support::{
    MS, eventually,
    fake::{Act, Fake, Moment, bulk},
    panics,
};
use redlock_tokio::{Durability, NodeState, Redlock, RedlockBuilder};

const GROUP: &str = "orders";
const WINDOW: Duration = Duration::from_millis(300);

/// What the fake sentinels say of the master.
#[derive(Clone)]
struct Said {
    ip: String,
    port: String,
    epoch: String,
}

impl Said {
    fn answer(&self) -> Vec<u8> {
        list(&[
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
        ])
    }
}

fn list(fields: &[&str]) -> Vec<u8> {
    let mut text = format!("*{}\r\n", fields.len()).into_bytes();
    for field in fields {
        text.extend(bulk(field.as_bytes()));
    }
    text
}

fn id(number: usize) -> String {
    format!("{number:040x}")
}

fn place(fake: &Fake) -> [String; 2] {
    let address = fake.address();
    let (ip, port) = address.rsplit_once(':').unwrap();
    [ip, port].map(str::to_owned)
}

/// A fake master, and three fake sentinels that name it.
struct Scene {
    master: Fake,
    sentinels: [Fake; 3],
    said: Arc<Mutex<Said>>,
}

impl Scene {
    fn new() -> Self {
        let [master, sentinels @ ..] = [(); 4].map(|()| Fake::spawn());
        let [ip, port] = place(&master);
        let epoch = "1".to_owned();
        let said = Arc::new(Mutex::new(Said { ip, port, epoch }));
        for (number, fake) in sentinels.iter().enumerate() {
            let mut others = b"*2\r\n".to_vec();
            for other in (0..3).filter(|other| *other != number) {
                let [ip, port] = place(&sentinels[other]);
                others.extend(list(&["runid", &id(other), "ip", &ip, "port", &port]));
            }
            let said = Arc::clone(&said);
            fake.behave(move |moment| {
                let Moment::Asked([name, question, ..]) = moment else {
                    return None;
                };
                let answer = match question.to_ascii_uppercase().as_slice() {
                    _ if name != b"SENTINEL" => return None,
                    b"MYID" => bulk(id(number).as_bytes()),
                    b"MASTER" => said.lock().unwrap().answer(),
                    _ => others.clone(),
                };
                Some(vec![Act::Say(answer)])
            });
        }
        Self {
            master,
            sentinels,
            said,
        }
    }

    fn change(&self, change: impl FnOnce(&mut Said)) {
        change(&mut self.said.lock().unwrap());
    }

    fn builder(&self) -> RedlockBuilder {
        let sentinels: Vec<_> = self.sentinels.iter().map(Fake::address).collect();
        Redlock::builder().nodes(format!("redis+sentinel://{}/{GROUP}", sentinels.join(",")))
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
    let scene = Scene::new();
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
    let scene = Scene::new();
    let published = [
        b">3\r\n".to_vec(),
        bulk(b"message"),
        bulk(b"+switch-master"),
        bulk(b"orders 10.0.0.1 1 10.0.0.2 2"),
    ];
    scene.sentinels[0].be_odd_at(&["SUBSCRIBE"], &[Act::Repeat(MS(1), published.concat())]);
    let redlock = client(scene.builder()).await;
    votes(&redlock).await;
    let before = scene.sentinels[1].odd_answers();
    let time = Duration::from_secs(2);
    tokio::time::sleep(time).await;
    // Each question has three parts.
    let questions = (scene.sentinels[1].odd_answers() - before) / 3;
    let least = time.as_millis() / (WINDOW / 3).as_millis();
    let most = usize::try_from(10 * least).unwrap();
    assert!((1..=most).contains(&questions), "{questions} in {time:?}");
    assert!(scene.sentinels[0].streamed() > 0, "there was a flood");
    votes(&redlock).await;
}

/// The master moves between two servers as often as the sentinels are asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_moves_back_and_forth_never_votes_and_is_rarely_connected_to() {
    panics::watch();
    let scene = Scene::new();
    let other = Fake::spawn();
    let ports = [&scene.master, &other].map(|it| place(it)[1].clone());
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
