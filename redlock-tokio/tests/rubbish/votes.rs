//! Answers that look like votes but are none: they answer another question or no question, or have a form that
//! the command never returns. If the answers of a connection got out of step, each later answer would go to
//! the wrong lock.

use std::time::Duration;

use redlock_tokio::{LockOptions, MemoryNode, Redlock};

use crate::support::{
    MS,
    fake::{Act, Fake, LOCKING},
    trusting,
};

const NODE_TIMEOUT: Duration = Duration::from_millis(250);

/// Connects to two nodes in memory, and three servers on which another client holds `held`.
async fn with_three() -> (Vec<Fake>, Redlock) {
    let fakes: Vec<_> = (0..3).map(|_| Fake::spawn()).collect();
    fakes.iter().for_each(|fake| fake.hold("held"));
    let redlock = connect(&fakes).await;
    (fakes, redlock)
}

async fn connect(fakes: &[Fake]) -> Redlock {
    let builder = trusting(fakes.iter().map(Fake::url))
        .custom_nodes([0, 1].map(|_| MemoryNode::new()))
        .options(LockOptions::new().no_renewal().retry_delay(MS(5), MS(20)))
        .node_timeout(NODE_TIMEOUT);
    builder.build().await.unwrap()
}

fn make_odd(fakes: &[Fake], commands: &'static [&'static str], acts: &[Act]) {
    fakes.iter().for_each(|it| it.be_odd_at(commands, acts));
}

fn was_tested(fakes: &[Fake]) {
    assert!(
        fakes.iter().all(|it| it.odd_answers() > 0),
        "it was not tested"
    );
}

#[tokio::test]
async fn control_a_key_of_another_client_is_contended() {
    let (_fakes, redlock) = with_three().await;
    let error = redlock.try_lock("held").await.unwrap_err();
    assert!(error.is_contended(), "the control: {error}");
    assert!(redlock.try_lock("free").await.is_ok());
}

/// The redis crate discards an answer that arrives while no question is open.
#[tokio::test]
async fn an_answer_before_the_question_is_no_vote() {
    let (fakes, redlock) = with_three().await;
    drop(redlock);
    for commands in [&["EVAL"], &["SCRIPT"]] {
        make_odd(&fakes, commands, &[Act::Obey("", "+OK\r\n+OK\r\n")]);
        let redlock = connect(&fakes).await;
        assert!(redlock.try_lock("held").await.is_err(), "{commands:?}");
    }
    was_tested(&fakes);
}

/// An answer is left over from the setup. It must not be the answer to the first lock.
#[tokio::test]
async fn an_extra_answer_while_connecting_does_not_shift_later_answers() {
    let (fakes, redlock) = with_three().await;
    drop(redlock);
    make_odd(&fakes, &["SCRIPT"], &[Act::Obey("+OK\r\n", "")]);
    let redlock = connect(&fakes).await;
    was_tested(&fakes);
    for number in 0..10 {
        drop(redlock.try_lock(format!("free{number}")).await);
        assert!(
            redlock.try_lock("held").await.is_err(),
            "not locked by a stray answer"
        );
    }
}

#[tokio::test]
async fn an_answer_in_front_of_the_answer_is_no_vote() {
    let (fakes, redlock) = with_three().await;
    make_odd(&fakes, &["SET"], &[Act::Obey("+OK\r\n", "")]);
    assert!(redlock.try_lock("held").await.is_err());
    was_tested(&fakes);
}

#[tokio::test]
async fn answers_without_end_are_no_votes() {
    let (fakes, redlock) = with_three().await;
    make_odd(&fakes, LOCKING, &[Act::Repeat(b"+OK\r\n".repeat(1000))]);
    drop(redlock.try_lock("free").await);
    assert!(redlock.try_lock("held").await.is_err());
    was_tested(&fakes);
}

#[tokio::test]
async fn a_number_does_not_grant_a_set() {
    let (fakes, redlock) = with_three().await;
    make_odd(&fakes, &["SET"], &[Act::Say(b":1\r\n".into())]);
    let error = redlock.try_lock("free").await.map(drop).unwrap_err();
    assert!(error.to_string().contains("unexpected answer"), "{error}");
    was_tested(&fakes);
}

#[tokio::test]
async fn a_status_does_not_grant_an_extension() {
    for answer in ["+OK\r\n", ":1\r\n"] {
        let (fakes, redlock) = with_three().await;
        let guard = redlock.try_lock("free").await.unwrap();
        make_odd(&fakes, &["EVALSHA", "EVAL"], &[Act::Say(answer.into())]);
        assert!(guard.extend().await.is_err(), "{answer:?}");
        was_tested(&fakes);
    }
}

#[tokio::test]
async fn an_extension_without_a_remaining_time_is_refused() {
    for answer in [
        "$0\r\n\r\n",
        "$2\r\n1x\r\n",
        "$1\r\n\0\r\n",
        "*1\r\n$1\r\n1\r\n",
    ] {
        an_extension_is_refused(answer).await;
    }
}

#[tokio::test]
async fn an_answer_about_more_extensions_than_were_requested_is_refused() {
    an_extension_is_refused("$7\r\n100,100\r\n").await;
}

async fn an_extension_is_refused(answer: &str) {
    let (fakes, redlock) = with_three().await;
    let guard = redlock.try_lock("free").await.unwrap();
    make_odd(&fakes, &["EVALSHA", "EVAL"], &[Act::Say(answer.into())]);
    let error = guard.extend().await.expect_err(answer).to_string();
    assert!(error.contains("unexpected answer"), "{answer:?}: {error}");
    was_tested(&fakes);
}

#[tokio::test]
async fn control_a_proper_extension_is_granted() {
    let (_fakes, redlock) = with_three().await;
    let guard = redlock.try_lock("free").await.unwrap();
    guard.extend().await.expect("the control");
}
