//! The fencing tokens of every lease.

use super::*;

#[test]
fn a_fence_was_accepted_by_a_majority_under_the_winning_token() {
    check_lives(400, |driven| {
        let mut answers = Answers::default();
        let fenced = driven.log.iter().find_map(|entry| match entry.input {
            Input::Acquire => Some(false),
            Input::AcquireFenced(_) => Some(true),
            _ => None,
        });
        for entry in &driven.log {
            answers.hear(driven.nodes(), entry);
            for event in &entry.told {
                let Event::Acquired { fence, .. } = *event else {
                    continue;
                };
                prop_assert_eq!(Some(fence.is_some()), fenced);
                let Some(won) = fence else {
                    continue;
                };
                let winner = entry.after.token();
                let accepted = (0..answers.sent_at.len()).any(|number| {
                    let proposed = match answers.sent_at[number].1 {
                        Operation::Acquire { token, fence, .. } => {
                            fence.map(|fence| (token, fence))
                        }
                        Operation::Fence { token, fence } => Some((token, fence)),
                        _ => None,
                    };
                    proposed == Some((winner, won))
                        && answers.granted(number, driven.nodes(), false)
                });
                prop_assert!(accepted, "{won:?}");
            }
        }
        Ok(())
    });
}

#[test]
fn a_further_proposal_is_the_next_after_what_outbid_the_last() {
    check_lives(400, |driven| {
        let mut answers = Answers::default();
        let mut last = None;
        for entry in &driven.log {
            answers.hear(driven.nodes(), entry);
            for sent in entry.sent.iter().filter(|_| !is_held(entry)) {
                let fence = match sent.operation {
                    Operation::Fence { fence, .. } => fence,
                    Operation::Acquire { fence, .. } => {
                        // Each attempt proposes more than the one before, until the last token.
                        prop_assert!(fence > last || last.is_none_or(|it| it == FencingToken::MAX));
                        last = fence;
                        continue;
                    }
                    _ => continue,
                };
                let Input::Reply { to: Some(to), .. } = entry.input else {
                    prop_assert!(false, "nobody outbid");
                    continue;
                };
                let counters = answers.first[&to].values();
                let counters = counters.filter_map(|said| said.counter());
                // Never smaller than the last, whatever a node says of its counter.
                let outbid = counters.max().max(last);
                prop_assert_eq!(Some(fence), outbid.and_then(FencingToken::next));
                last = Some(fence);
            }
        }
        Ok(())
    });
}
