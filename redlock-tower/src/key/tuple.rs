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

    fn extract(key: &impl ExtractKey<u32>) -> Extracted {
        let (request, extracted) = key.extract(7).now_or_never().expect("no wait");
        assert_eq!(request, 7, "the request is returned");
        extracted
    }

    #[test]
    fn all_keys_are_wanted_and_the_last_option_and_the_first_error_count() {
        let wanted =
            |keys: &[&str], wait| LockRequest::all(keys.to_vec()).wait(Duration::from_secs(wait));
        let a = |_: &u32| wanted(&["a"], 1);
        let b = |_: &u32| wanted(&["b"], 2);
        let c = |_: &u32| "c";
        let none = |_: &u32| None::<String>;
        let without_keys = |_: &u32| wanted(&[], 3);
        for (extracted, expected) in [
            (extract(&(a, b)), wanted(&["a", "b"], 2)),
            (extract(&(b, a)), wanted(&["b", "a"], 1)),
            (extract(&(none, b, none)), wanted(&["b"], 2)),
            (extract(&(c, a, c, c)), wanted(&["c", "a", "c", "c"], 1)),
            // It stays without keys, and is refused.
            (extract(&(a, without_keys)), wanted(&[], 3)),
            (extract(&(without_keys, b)), wanted(&[], 2)),
        ] {
            assert_eq!(extracted.unwrap(), Some(expected));
        }
        assert_eq!(extract(&(none, none)).unwrap(), None);
        let bad = |_: &u32| Err::<String, _>(KeyRejection::request("no account"));
        let worse = |_: &u32| Err::<String, _>(KeyRejection::layer("no such part"));
        for (extracted, expected) in [
            (extract(&(c, bad, worse)), "no account"),
            (extract(&(worse, bad)), "no such part"),
            (extract(&(c, c, c, worse)), "no such part"),
        ] {
            let error = extracted.unwrap_err().to_string();
            assert!(error.ends_with(expected), "{error}");
        }
    }
}
