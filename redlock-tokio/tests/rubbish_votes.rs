//! Answers that look like votes, but are none: to another question, unasked, or of a form that the
//! command does not have. A connection whose answers are out of step would give every one of them to
//! the wrong lock, for ever.

mod support;

use std::time::Duration;

use redlock_tokio::{LockOptions, MemoryNode, Redlock};
use support::{
    MS,
    fake::{Act, Fake, LOCKING},
    trusting,
};

const NODE_TIMEOUT: Duration = Duration::from_millis(250);

/// Three servers where another client holds `held`, and two nodes in memory.
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

fn turn(fakes: &[Fake], commands: &'static [&'static str], acts: &[Act]) {
    fakes.iter().for_each(|it| it.turn_odd_at(commands, acts));
}

fn was_tested(fakes: &[Fake]) {
    assert!(
        fakes.iter().all(|it| it.odd_answers() > 0),
        "it was not tested"
    );
}

#[tokio::test]
async fn held_elsewhere_is_held() {
    let (_fakes, redlock) = with_three().await;
    let error = redlock.try_lock("held").await.unwrap_err();
    assert!(error.is_contended(), "the control: {error}");
    assert!(redlock.try_lock("free").await.is_ok());
}

/// It is thrown away by the redis crate, if it comes while nothing is asked.
#[tokio::test]
async fn an_answer_before_the_question_is_no_vote() {
    let (fakes, redlock) = with_three().await;
    drop(redlock);
    for commands in [&["COMMAND"], &["SCRIPT"]] {
        turn(&fakes, commands, &[Act::Obey("", "+OK\r\n+OK\r\n")]);
        let redlock = connect(&fakes).await;
        assert!(redlock.try_lock("held").await.is_err(), "{commands:?}");
    }
    was_tested(&fakes);
}

/// The last answer to the setup is left over, and must not be the first to a lock.
#[tokio::test]
async fn an_answer_too_many_while_connecting_shifts_no_others() {
    let (fakes, redlock) = with_three().await;
    drop(redlock);
    turn(&fakes, &["COMMAND"], &[Act::Obey("+OK\r\n", "")]);
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
    turn(&fakes, &["SET"], &[Act::Obey("+OK\r\n", "")]);
    assert!(redlock.try_lock("held").await.is_err());
    was_tested(&fakes);
}

#[tokio::test]
async fn answers_without_end_are_no_votes() {
    let (fakes, redlock) = with_three().await;
    turn(&fakes, LOCKING, &[Act::Repeat(b"+OK\r\n".repeat(1000))]);
    drop(redlock.try_lock("free").await);
    assert!(redlock.try_lock("held").await.is_err());
    was_tested(&fakes);
}

#[tokio::test]
async fn a_set_is_not_granted_by_a_number() {
    let (fakes, redlock) = with_three().await;
    turn(&fakes, &["SET"], &[Act::Say(b":1\r\n".into())]);
    let error = redlock.try_lock("free").await.map(drop).unwrap_err();
    assert!(error.to_string().contains("unexpected answer"), "{error}");
    was_tested(&fakes);
}

#[tokio::test]
async fn an_extension_by_script_is_not_granted_by_a_status() {
    for answer in ["+OK\r\n", ":1\r\n"] {
        let (fakes, redlock) = with_three().await;
        let guard = redlock.try_lock("free").await.unwrap();
        turn(&fakes, &["EVALSHA", "EVAL"], &[Act::Say(answer.into())]);
        assert!(guard.extend().await.is_err(), "{answer:?}");
        was_tested(&fakes);
    }
}

#[tokio::test]
async fn an_extension_without_a_time_is_none() {
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
async fn extensions_of_more_than_was_asked_for_are_none() {
    an_extension_is_refused("$7\r\n100,100\r\n").await;
}

async fn an_extension_is_refused(answer: &str) {
    let (fakes, redlock) = with_three().await;
    let guard = redlock.try_lock("free").await.unwrap();
    turn(&fakes, &["EVALSHA", "EVAL"], &[Act::Say(answer.into())]);
    let error = guard.extend().await.expect_err(answer).to_string();
    assert!(error.contains("unexpected answer"), "{answer:?}: {error}");
    was_tested(&fakes);
}

#[tokio::test]
async fn an_extension_that_is_one_is_granted() {
    let (_fakes, redlock) = with_three().await;
    let guard = redlock.try_lock("free").await.unwrap();
    guard.extend().await.expect("the control");
}
