//! Fencing tokens, against real servers.

use redlock_tokio::{FencingToken, LockError};

use crate::fleet::{clis, fleet};

/// Counters of 16 digits are compared exactly, up to the largest one.
#[tokio::test]
async fn the_largest_token_is_the_last() {
    let (servers, [redlock]) = fleet(3).await;
    let last = 9_007_199_254_740_991_u64;
    for cli in clis(&servers) {
        cli.set("redlock:fence:{k}", &(last - 1).to_string());
    }
    let guard = redlock.lock("k").fenced(true).await.unwrap();
    assert_eq!(guard.fencing_token().map(FencingToken::get), Some(last));
    guard.release().await;
    let outcome = redlock.lock("k").fenced(true).await;
    assert_refused!(outcome, LockError::FenceExhausted);
}

#[tokio::test]
async fn a_key_of_any_bytes_can_be_fenced() {
    let (servers, [redlock]) = fleet(3).await;
    let longest = vec![b'x'; redlock_tokio::Key::MAX_LEN];
    for key in [&b"a}b"[..], b"{}", b"}{", b"{t}k", b"\0\xff}", &longest] {
        let mut last = None;
        for _ in 0..2 {
            let guard = redlock.lock(key).fenced(true).await.unwrap();
            assert!(guard.fencing_token() > last);
            last = guard.fencing_token();
            guard.release().await;
        }
    }
    let count = "return #redis.call('KEYS', 'redlock:fence:*')";
    assert_eq!(clis(&servers)[0].run(&["EVAL", count, "0"]), "6");
}
