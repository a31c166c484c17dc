//! What a master does for several keys at once.

use std::ops::Range;

use redlock_core::{Operation, Token};

use crate::master::{Master, Request, Vote};

/// Whose token each of the keys has.
pub(super) fn owners(master: &Master, at: u64, keys: &Range<usize>) -> Vec<Option<Token>> {
    let mut owners = vec![None; keys.len()];
    for (key, entry) in master.live(at).filter(|(key, _)| keys.contains(key)) {
        owners[key - keys.start] = Some(entry.token);
    }
    owners
}

/// Carries out a request for all keys or for none, or for as many as are free if it gathers.
pub(super) fn execute_all(
    master: &mut Master,
    at: u64,
    keys: &Range<usize>,
    request: &Request,
) -> Vote {
    let owners = owners(master, at, keys);
    let mut each = |keys: Range<usize>| -> Vec<Vote> {
        let request = |key| Request { key, ..*request };
        keys.map(|key| master.execute(at, &request(key))).collect()
    };
    match request.operation {
        Operation::Acquire { token, gathers, .. } if keys.len() > 1 => {
            let is_taken = |owner: &Option<Token>| owner.is_some_and(|it| it != token);
            match owners.iter().position(is_taken) {
                None => drop(each(keys.clone())),
                Some(first) => {
                    if gathers {
                        each(keys.start..keys.start + first);
                    }
                    return Vote::Denied;
                }
            }
            Vote::Granted
        }
        Operation::Probe { .. } => each(keys.clone())
            .into_iter()
            .max_by_key(|vote| match vote {
                Vote::Taken(left) => Some(*left),
                _ => None,
            })
            .expect("at least one key"),
        _ => {
            let votes = each(keys.clone());
            let denial = votes.iter().find(|it| **it != Vote::Granted);
            denial.copied().unwrap_or(Vote::Granted)
        }
    }
}
