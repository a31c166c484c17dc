use super::{ExtractKey, Extracted};

macro_rules! tuples_extract_keys {
    ($($rest:ident)+) => {
        /// Makes several keys. All of them are locked, or none. For one key of several parts, see
        /// [`Key::parts`](redlock_tokio::Key::parts). An extractor that returns no key adds none.
        impl<Request, First, $($rest),+> ExtractKey<Request> for (First, $($rest),+)
        where
            Request: Send,
            First: ExtractKey<Request> + Sync,
            $($rest: ExtractKey<Request> + Sync,)+
        {
            #[allow(non_snake_case, reason = "values are named after their types")]
            async fn extract(&self, request: Request) -> (Request, Extracted) {
                let (first, $($rest),+) = self;
                let extracted = first.extract(request).await;
                $(let extracted = extract_too($rest, extracted).await;)+
                extracted
            }
        }
    };
}

tuples_extract_keys!(Second);
tuples_extract_keys!(Second Third);
tuples_extract_keys!(Second Third Fourth);

/// Extracts another key of a request.
async fn extract_too<Request, K: ExtractKey<Request>>(
    key: &K,
    (request, before): (Request, Extracted),
) -> (Request, Extracted) {
    let before = match before {
        Ok(before) => before,
        Err(rejection) => return (request, Err(rejection)),
    };
    let (request, extracted) = key.extract(request).await;
    let both = extracted.map(|this| match (before, this) {
        (Some(before), Some(this)) => Some(before.and(this)),
        (before, this) => before.or(this),
    });
    (request, both)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;

    use super::*;
    use crate::{KeyRejection, LockRequest};

    struct Transfer {
        from: u32,
        to: Option<u32>,
    }

    fn extract(key: &impl ExtractKey<Transfer>, from: u32, to: Option<u32>) -> Extracted {
        let extracting = key.extract(Transfer { from, to });
        let (transfer, wanted) = extracting.now_or_never().expect("no wait");
        let returned = (transfer.from, transfer.to);
        assert_eq!(returned, (from, to), "the request is returned");
        wanted
    }

    #[test]
    fn a_tuple_makes_the_keys_of_all_members() {
        let from = |it: &Transfer| it.from;
        let to = |it: &Transfer| it.to;
        let always = |_: &Transfer| "bank";
        for (wanted, keys) in [
            (extract(&(from, to), 7, Some(3)), &["7", "3"][..]),
            (
                extract(&(from, to, always, always), 7, Some(3)),
                &["7", "3", "bank", "bank"],
            ),
            (extract(&(to, from, always), 7, None), &["7", "bank"]),
        ] {
            assert_eq!(wanted.unwrap(), Some(LockRequest::all(keys.to_vec())));
        }
        assert_eq!(extract(&(to, to), 7, None).unwrap(), None);
    }

    #[test]
    fn the_last_option_counts_and_a_request_without_keys_stays_one() {
        let wanted = |keys: &[&str], wait| LockRequest::all(keys.to_vec()).wait(wait);
        let (short, long) = (Duration::from_secs(1), Duration::from_secs(2));
        let a = move |_: &Transfer| wanted(&["a"], short);
        let b = move |_: &Transfer| wanted(&["b"], long);
        let none = move |_: &Transfer| wanted(&[], long);
        for (outcome, expected) in [
            (extract(&(b, a), 7, None), wanted(&["b", "a"], short)),
            (extract(&(a, none), 7, None), wanted(&[], long)),
            (extract(&(none, b), 7, None), wanted(&[], long)),
        ] {
            assert_eq!(outcome.unwrap(), Some(expected));
        }
    }

    #[test]
    fn the_first_error_counts() {
        let good = |it: &Transfer| it.from;
        let bad = |_: &Transfer| Err::<String, _>(KeyRejection::request("no account"));
        let worse = |_: &Transfer| Err::<String, _>(KeyRejection::layer("no such part"));
        for (outcome, expected) in [
            (extract(&(good, bad, worse), 7, None), "no account"),
            (extract(&(worse, bad), 7, None), "no such part"),
            (extract(&(good, good, good, worse), 7, None), "no such part"),
        ] {
            let error = outcome.unwrap_err().to_string();
            assert!(error.ends_with(expected), "{error}");
        }
    }
}
