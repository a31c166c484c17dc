//! Nodes that say that they came up recently, in paused time.

use std::time::Duration;

use futures::{FutureExt, future::BoxFuture};
use redlock_tokio::{
    Answer, Clock, Command, FencingToken, LockError, Node, NodeError, NodeState, Operation,
    Redlock, RunId, Server, ServerInfo, Session, Vote,
};

const COUNTER: u64 = FencingToken::MAX.get() - 10;

/// A node that has no keys, but a fencing counter that is ahead of every clock.
struct Young {
    name: String,
    letter: u8,
}

struct Conversation {
    letter: u8,
}

impl Node for Young {
    fn address(&self) -> &str {
        &self.name
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Session>, NodeError>> {
        let letter = self.letter;
        async move { Ok(Box::new(Conversation { letter }) as Box<dyn Session>) }.boxed()
    }
}

impl Session for Conversation {
    fn execute(&mut self, batch: &[Command]) -> BoxFuture<'static, Result<Vec<Answer>, NodeError>> {
        let counter = FencingToken::new(COUNTER);
        let vote = |command: &Command| match command.operation() {
            Operation::Acquire {
                fence: Some(fence), ..
            }
            | Operation::Fence { fence, .. }
                if fence <= counter =>
            {
                Ok(Vote::Outbid { counter })
            }
            _ => Ok(Vote::Granted),
        };
        let answers = batch.iter().map(vote).collect();
        async move { Ok(answers) }.boxed()
    }

    fn server(&self) -> Server {
        let run_id = RunId::new([self.letter; RunId::LEN]);
        Server::Known(ServerInfo::new(run_id, Duration::from_secs(2)))
    }
}

/// What outbids is no agreement: not while the node has no vote, and not on the same connection when
/// it has one.
#[tokio::test(start_paused = true)]
async fn fencing_tokens_do_not_go_back_when_a_quarantine_is_over() {
    let nodes = (b'a'..=b'c').map(|letter| Young {
        name: format!("node {}", char::from(letter)),
        letter,
    });
    let builder = Redlock::builder().custom_nodes(nodes).clock(Clock::tokio());
    let redlock = builder.build().await.unwrap();
    let error = redlock
        .lock("k")
        .fenced()
        .wait(Duration::ZERO)
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            LockError::NoQuorum(_) | LockError::Quarantined { .. }
        ),
        "{error}"
    );
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(
        redlock
            .nodes()
            .iter()
            .all(|it| it.state == NodeState::Voting)
    );
    let guard = redlock.lock("k").fenced().await.expect("they vote");
    let token = guard.fencing_token().expect("fenced").get();
    assert!(token > COUNTER, "{token} is not beyond {COUNTER}");
}
