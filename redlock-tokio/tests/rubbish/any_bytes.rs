//! Properties of the parsers: URLs of nodes, `INFO`, and the answers to locks. No bytes cause a panic, a secret
//! in an error, or a vote that the server did not give.
//!
//! Each property runs for a few hundred cases by default. For more of them:
//!
//! ```sh
//! PROPTEST_CASES=100000 cargo test -p redlock-tokio --all-features --release --test rubbish any_bytes
//! ```
//!
//! A failure prints the smallest input that causes it. That input becomes a test of its own here, since no
//! regression files are kept.

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

use proptest::{
    collection::vec,
    prelude::{Just, ProptestConfig, Strategy, any, prop_assert, prop_oneof, proptest},
    sample::{Index, select},
};
use redlock_tokio::{
    LockError, LockOptions, MemoryNode, Redlock,
    node::{Node, RedisNode},
};
use tokio::runtime::Runtime;

use crate::support::{
    MS,
    fake::{Act, Fake, LOCKING, bulk, sane_info},
    panics, trusting,
};

const SECRET: &str = "hunter2";

const LIMIT: Duration = Duration::from_millis(250);

/// Runs `PROPTEST_CASES` cases, or by default as many as take about a second.
fn cases(usual: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    let is_set = std::env::var_os("PROPTEST_CASES").is_some();
    ProptestConfig {
        cases: if is_set { default.cases } else { usual },
        failure_persistence: None,
        ..default
    }
}

/// One runtime for all tests, since lanes run on until their locks are dropped.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
});

/// What URLs are made of, and a space.
const PARTS: &str = "redis rediss unix redis+unix redis+sentinel rediss+sentinel , valkey :// : // / @ host [::1] \
                     127.0.0.1 0.0.0.0 [ ] 6379 99999 -1 ? & # = db=1 protocol=resp3 pass=hunter2 user=a %00 %ff % \
                     \0 \u{e9} ..";

fn url() -> impl Strategy<Value = String> {
    let parts: Vec<_> = PARTS.split_ascii_whitespace().chain([" "]).collect();
    let part = select(parts).prop_map(str::to_owned);
    prop_oneof![
        ".*",
        vec(part, 0..10).prop_map(|parts| parts.concat()),
        // A password in the right place, and noise elsewhere.
        (
            "(redis|rediss|unix|redis\\+sentinel)",
            "[^@/]{0,5}",
            "\\PC{0,8}"
        )
            .prop_map(|(scheme, user, rest)| format!("{scheme}://{user}:{SECRET}@{rest}")),
        ("[a-z]{0,5}", ":[0-9]{0,6}", "(/[0-9a-z]{0,3})?")
            .prop_map(|(host, port, database)| format!("redis://:{SECRET}@{host}{port}{database}")),
    ]
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn a_url_is_accepted_or_refused_without_its_secret(url in url()) {
        // In the host or the scheme the word is no password.
        let is_password = url.contains(&format!(":{SECRET}@")) && url.matches('@').count() == 1
            || url.contains("pass=hunter2") && url.starts_with("unix:///");
        match RedisNode::from_url(&url) {
            Ok(node) => {
                prop_assert!(!node.address().is_empty() || url.starts_with("unix") || url.starts_with("redis+unix"));
                let shown = format!("{node:?}");
                prop_assert!(!is_password || !shown.contains(SECRET), "{shown}");
            }
            Err(error) => {
                let text = format!("{error} {error:?}");
                prop_assert!(error.to_string().contains("expected redis://"), "{text}");
                prop_assert!(!is_password || !text.contains(SECRET), "{text}");
                prop_assert!(text.chars().count() < 1000, "{text}");
            }
        }
    }
}

/// Answers to `INFO`: sane ones with one odd piece, and any bytes.
fn info() -> impl Strategy<Value = Vec<u8>> {
    let names = "uptime_in_seconds run_id role redis_mode cluster_enabled maxmemory_policy loading aof_enabled \
                 redis_version maxmemory master_link_status";
    let names: Vec<_> = names.split(' ').collect();
    let value = prop_oneof![
        any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        Just(u64::MAX.to_string().into_bytes()),
        Just(b"99999999999999999999999".to_vec()),
        Just(b"1e9".to_vec()),
        Just(b"+5".to_vec()),
        Just(Vec::new()),
        Just(b"slave".to_vec()),
        Just(b"master\n".to_vec()),
        vec(any::<u8>(), 0..64),
        (1_usize..100_000).prop_map(|len| vec![b'9'; len]),
    ];
    let end = select(vec!["\r\n", "\n", "\r", "", "\r\n\r\n"]);
    let line = (
        select(names),
        select(vec![":", "", "::", " : "]),
        value,
        end,
    )
        .prop_map(|(name, colon, value, end)| {
            [name.as_bytes(), colon.as_bytes(), &value, end.as_bytes()].concat()
        });
    let sane = || sane_info(7).into_bytes();
    prop_oneof![
        vec(any::<u8>(), 0..300),
        vec(line.clone(), 0..12).prop_map(|lines| lines.concat()),
        // The same name twice, before or behind the sane one.
        line.clone().prop_map(move |line| [sane(), line].concat()),
        line.prop_map(move |line| [line, sane()].concat()),
        any::<Index>().prop_map(move |at| sane()[..at.index(sane().len())].to_vec()),
        (any::<Index>(), any::<u8>()).prop_map(move |(at, byte)| {
            let mut text = sane();
            let at = at.index(text.len());
            text[at] = byte;
            text
        }),
    ]
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn any_info_leads_to_a_lock_or_a_short_error(info in info(), trusted in any::<bool>()) {
        panics::watch();
        let fake = Fake::spawn();
        fake.set_info(info);
        let options = LockOptions::new().no_renewal();
        let error = RUNTIME.block_on(async {
            let builder = match trusted {
                true => trusting([fake.url()]),
                false => Redlock::builder().nodes([fake.url()]),
            };
            let builder = builder.options(options).node_timeout(MS(2000));
            match builder.build().await {
                Err(error) => Some(error.to_string()),
                Ok(redlock) => redlock.try_lock("k").await.err().map(|error| match error {
                    // This error is about the majority, and names no node.
                    LockError::Quarantined { .. } => format!("{}: {error}", fake.address()),
                    error => error.to_string(),
                }),
            }
        });
        if let Some(error) = error {
            prop_assert!(error.contains(&fake.address()), "{error}");
            prop_assert!(error.chars().count() < 500, "{error}");
        }
        prop_assert!(panics::count() == 0);
    }
}

/// Bytes that resemble an answer.
fn answer() -> impl Strategy<Value = Vec<u8>> {
    let kind = || select(b"+-:$*_,#!=(%~|>0\r\n".to_vec());
    let length = prop_oneof![
        (-3_i64..20).prop_map(|number| number.to_string()),
        any::<i64>().prop_map(|number| number.to_string()),
        "[0-9+\\- .a-z]{0,4}",
    ];
    let piece = prop_oneof![
        (kind(), length).prop_map(|(kind, length)| [&[kind], length.as_bytes(), b"\r\n"].concat()),
        select(vec![
            "OK",
            "+OK\r\n",
            "$-1\r\n",
            "$1\r\n1\r\n",
            ":1\r\n",
            ":0\r\n",
            "_\r\n",
            "-NOSCRIPT x\r\n",
            "-ERR"
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        vec(any::<u8>(), 0..12),
        vec(any::<u8>(), 0..12).prop_map(|bytes| bulk(&bytes)),
        (select(vec!["-", "-ERR ", "+"]), 1_usize..100_000).prop_map(|(begin, len)| format!(
            "{begin}{}\r\n",
            "x".repeat(len)
        )
        .into_bytes()),
    ];
    vec(piece, 0..5).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn only_a_granting_answer_is_a_vote(answer in answer()) {
        panics::watch();
        // The connection ends after the answer, so that the client does not wait.
        let fake = Fake::at(LOCKING, &[Act::Say(answer.clone()), Act::Close]);
        let options = LockOptions::new().no_renewal();
        let outcome = RUNTIME.block_on(async {
            let builder = trusting([fake.url()]).options(options).node_timeout(MS(2000));
            let redlock = builder.build().await.unwrap();
            redlock.try_lock("k").await.map(drop)
        });
        prop_assert!(fake.odd_answers() > 0, "it was not tested");
        // Pushes may come in front.
        let is_yes = answer.windows(5).any(|it| it == b"+OK\r\n");
        match outcome {
            Ok(()) => prop_assert!(is_yes, "a lock for {:?}", answer.escape_ascii().to_string()),
            Err(error) => {
                let text = error.to_string();
                prop_assert!(text.contains(&fake.address()), "{text}");
                prop_assert!(text.chars().count() < 500, "{text}");
                prop_assert!(!text.contains(char::is_control), "{text:?}");
            }
        }
        prop_assert!(panics::count() == 0);
    }
}

/// The commands that a client sends when it connects, and those of locks.
const MOMENTS: [&[&str]; 5] = [&["CLIENT"], &["HELLO"], &["SCRIPT"], &["INFO"], LOCKING];

proptest! {
    #![proptest_config(cases(50))]

    #[test]
    fn any_answer_of_a_minority_costs_no_lock(
        answer in answer(),
        moment in select(MOMENTS.to_vec()),
        end in select(vec![None, Some(Act::Hush), Some(Act::Close)]),
    ) {
        panics::watch();
        let acts: Vec<_> = [Act::Say(answer)].into_iter().chain(end).collect();
        let fakes = [0, 1].map(|_| Fake::at(moment, &acts));
        let urls = fakes.iter().map(|it| format!("{}?protocol=resp3", it.url()));
        let builder = trusting(urls)
            .custom_nodes([0, 1, 2].map(|_| MemoryNode::new()))
            .options(LockOptions::new().retry_delay(MS(5), MS(20)))
            .node_timeout(LIMIT)
            .connect_timeout(LIMIT);
        let start = Instant::now();
        match RUNTIME.block_on(builder.build()) {
            Ok(redlock) => {
                let guard = RUNTIME.block_on(async { redlock.lock("k").await });
                prop_assert!(guard.is_ok(), "{guard:?}");
            }
            // The client takes the nodes for something else than lock servers.
            Err(error) => {
                let text = error.to_string();
                prop_assert!(fakes.iter().any(|it| text.contains(&it.address())), "{text}");
                prop_assert!(text.chars().count() < 500, "{text}");
            }
        }
        prop_assert!(start.elapsed() < 20 * LIMIT, "{:?}", start.elapsed());
        prop_assert!(panics::count() == 0);
    }
}

/// The control: a panic in a task of the driver is counted, and one of a test is not.
#[test]
fn panics_in_tasks_of_the_driver_are_counted() {
    let in_a_task = RUNTIME.spawn(async { panics::is_watched() });
    assert!(RUNTIME.block_on(in_a_task).unwrap() && !panics::is_watched());
}
