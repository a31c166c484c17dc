//! Answers that look like votes but are none: they answer another question or no question, or have a form that
//! the command never returns. If the answers of a connection got out of step, each later answer would go to
//! the wrong lock.

use std::time::{Duration, Instant};

use redlock_tokio::{LockOptions, MemoryNode, Redlock};

use crate::support::{
    MS, built,
    fake::{Act, Fake, LOCKING},
    trusting,
};

/// The redis crate discards an answer that arrives while no question is open. One may be left over from the setup.
#[tokio::test]
async fn an_answer_to_another_question_is_no_vote() {
    let in_front = Act::Obey("+OK\r\n", "");
    let behind = Act::Obey("", "+OK\r\n+OK\r\n");
    let without_end = Act::Repeat(Duration::ZERO, b"+OK\r\n".repeat(1000));
    for (commands, act) in [
        (&["SCRIPT"][..], in_front.clone()),
        (&["SCRIPT"], behind.clone()),
        (&["EVALSHA", "EVAL"], behind),
        (&["SET"], in_front),
        (LOCKING, without_end),
    ] {
        let fakes = three();
        let mut redlock = connect(&fakes).await;
        make_odd(&fakes, commands, &act);
        if commands == ["SCRIPT"] {
            redlock = connect(&fakes).await;
        }
        for number in 0..10 {
            drop(redlock.try_lock(format!("free{number}")).await);
            let outcome = redlock.try_lock("held").await;
            assert!(outcome.is_err(), "{commands:?} {act:?}");
        }
        assert_tested(&fakes);
    }
}

#[tokio::test]
async fn an_answer_of_another_form_does_not_grant_a_lock() {
    for answer in [
        "*1\r\n+OK\r\n",
        "%1\r\n*1\r\n:1\r\n*1\r\n%0\r\n",
        "~1\r\n+OK\r\n",
        ",1.0\r\n",
        "#t\r\n",
        "(1\r\n",
        "=6\r\ntxt:OK\r\n",
        "$2\r\nOK\r\n",
        "$0\r\n\r\n",
        "+KO\r\n",
        "+\r\n",
        ":1\r\n",
        "-\r\n",
        "-NOSCRIPT no\r\n",
        "-ERR \x07\x1b[2J\0\r\n",
    ] {
        let fakes = three();
        let redlock = connect(&fakes).await;
        make_odd(&fakes, LOCKING, &Act::Say(answer.into()));
        let error = redlock.try_lock("free").await.expect_err(answer);
        let text = error.to_string();
        assert!(text.contains(&fakes[0].address()), "{answer:?}: {text}");
        assert!(!text.contains(char::is_control), "{answer:?}: {text:?}");
        assert_tested(&fakes);
        become_sane(&fakes, &redlock).await;
    }
}

#[tokio::test]
async fn nodes_that_stop_within_an_answer_are_connected_to_again() {
    let fakes = three();
    let redlock = connect(&fakes).await;
    let acts = [Act::Say(b"$5\r\nab".to_vec()), Act::Hush];
    fakes.iter().for_each(|it| it.be_odd_at(LOCKING, &acts));
    assert!(redlock.try_lock("free").await.is_err());
    assert_tested(&fakes);
    become_sane(&fakes, &redlock).await;
}

#[tokio::test]
async fn an_answer_of_another_form_does_not_grant_an_extension() {
    for answer in [
        "+OK\r\n",
        ":1\r\n",
        "$0\r\n\r\n",
        "$2\r\n1x\r\n",
        "$1\r\n\0\r\n",
        "*1\r\n$1\r\n1\r\n",
        // About more extensions than were requested.
        "$7\r\n100,100\r\n",
    ] {
        let fakes = three();
        let redlock = connect(&fakes).await;
        let guard = redlock.try_lock("free").await.unwrap();
        let act = Act::Say(answer.into());
        make_odd(&fakes, &["EVALSHA", "EVAL"], &act);
        let error = guard.extend().await.expect_err(answer).to_string();
        assert!(error.contains("unexpected answer"), "{answer:?}: {error}");
        assert_tested(&fakes);
    }
}

#[tokio::test]
async fn control_sane_answers_grant_what_is_free() {
    let fakes = three();
    let redlock = connect(&fakes).await;
    let error = redlock.try_lock("held").await.unwrap_err();
    assert!(error.is_contended(), "{error}");
    let guard = redlock.try_lock("free").await.unwrap();
    guard.extend().await.unwrap();
}

/// Three servers on which another client holds `held`.
fn three() -> Vec<Fake> {
    let fakes: Vec<_> = (0..3).map(|_| Fake::spawn()).collect();
    fakes.iter().for_each(|fake| fake.hold("held"));
    fakes
}

/// Connects to these servers and two nodes in memory.
async fn connect(fakes: &[Fake]) -> Redlock {
    let builder = trusting(fakes.iter().map(Fake::url))
        .custom_nodes([0, 1].map(|_| MemoryNode::new()))
        .options(LockOptions::new().no_renewal().retry_delay(MS(5), MS(20)));
    built(builder.node_timeout(MS(250))).await
}

fn make_odd(fakes: &[Fake], commands: &'static [&'static str], act: &Act) {
    let acts = std::slice::from_ref(act);
    fakes.iter().for_each(|it| it.be_odd_at(commands, acts));
}

fn assert_tested(fakes: &[Fake]) {
    let is_tested = fakes.iter().all(|it| it.odd_answers() > 0);
    assert!(is_tested, "it was not tested");
}

/// Makes all servers sane, and waits until each has set a key.
async fn become_sane(fakes: &[Fake], redlock: &Redlock) {
    fakes.iter().for_each(Fake::be_sane);
    let until = Instant::now() + Duration::from_secs(20);
    while fakes.iter().any(|it| it.grants() == 0) {
        assert!(Instant::now() < until, "not used again");
        drop(redlock.lock("again").await);
        tokio::time::sleep(MS(10)).await;
    }
}
