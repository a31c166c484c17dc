mod tuple;

use std::{
    error::Error,
    future::{Ready, ready},
    sync::Arc,
    time::Duration,
};

use redlock_tokio::{Key, KeyError};
use thiserror::Error;

use crate::LockRequest;

/// Any error that can be passed between tasks.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// What there is to lock for a request: `None` lets it pass without a lock.
pub type Extracted = Result<Option<LockRequest>, KeyRejection>;

/// Finds out which resource a request is about.
///
/// Implemented for closures `Fn(&Request) -> K`, where `K` is an [`IntoKey`]: an owned string or
/// bytes, an integer, a [`Key`], a [`LockRequest`], an `Option` or a `Result` of them. (Owned, since the
/// request goes on while the key stays.)
///
/// A tuple makes *several keys*, all of which are locked. One key of several parts is something else: a
/// closure makes it with [`Key::parts`]. Under `(tenant, order)` all orders of a tenant wait for each other;
/// under `Key::parts(["order", tenant, order])` only requests for the same order do. Tuples have two to four
/// members that implement this trait, all but the first of which are `Clone`. Of options that several
/// members set, the last are taken.
///
/// ```
/// use redlock_tower::{ExtractKey, LockRequest};
///
/// struct Job { account: u64 }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let by_account = |job: &Job| format!("account:{}", job.account);
/// let (_job, key) = by_account.extract(Job { account: 7 }).await;
/// assert_eq!(key.unwrap(), Some(LockRequest::new("account:7")));
/// # }
/// ```
pub trait ExtractKey<Request> {
    /// What [`extract`](Self::extract) returns.
    type Future: Future<Output = (Request, Extracted)>;

    /// Finds the request's key. Takes the request, for extractors that must take it apart or read it,
    /// and gives it back.
    ///
    /// The key's error says whether the request is at fault or the layer.
    fn extract(&self, request: Request) -> Self::Future;

    /// Returns whether requests want several keys, as far as that is known before one comes, as it is of
    /// tuples. [`LockLayer::check`](crate::LockLayer::check) asks.
    fn makes_several(&self) -> bool {
        false
    }
}

impl<F, Request, K> ExtractKey<Request> for F
where
    F: Fn(&Request) -> K,
    K: IntoKey,
{
    type Future = Ready<(Request, Extracted)>;

    fn extract(&self, request: Request) -> Self::Future {
        let key = self(&request).into_key();
        ready((request, key))
    }
}

/// What a key closure may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a lock key",
    note = "return a `String`, a `Vec<u8>`, an integer, a `Key`, a `LockRequest`, or an `Option` or \
            `Result` of one; what is borrowed from the request must be made owned"
)]
pub trait IntoKey {
    /// Returns what to lock, or `None` if the request needs no lock.
    ///
    /// # Errors
    ///
    /// Says why there is no key although there should be one.
    fn into_key(self) -> Extracted;
}

impl IntoKey for LockRequest {
    fn into_key(self) -> Extracted {
        Ok(Some(self))
    }
}

impl IntoKey for Key {
    fn into_key(self) -> Extracted {
        LockRequest::new(self).into_key()
    }
}

impl IntoKey for Vec<u8> {
    fn into_key(self) -> Extracted {
        LockRequest::new(self).into_key()
    }
}

impl IntoKey for String {
    fn into_key(self) -> Extracted {
        self.into_bytes().into_key()
    }
}

impl IntoKey for &str {
    fn into_key(self) -> Extracted {
        LockRequest::new(self).into_key()
    }
}

impl IntoKey for &[u8] {
    fn into_key(self) -> Extracted {
        LockRequest::new(self).into_key()
    }
}

macro_rules! numbers_are_keys {
    ($($number:ty)*) => {$(
        impl IntoKey for $number {
            fn into_key(self) -> Extracted {
                self.to_string().into_key()
            }
        }
    )*};
}

numbers_are_keys!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

/// `None` lets the request pass without a lock.
impl<K: IntoKey> IntoKey for Option<K> {
    fn into_key(self) -> Extracted {
        self.map_or(Ok(None), IntoKey::into_key)
    }
}

/// An error is the request's fault, unless it is a [`KeyRejection`] that says otherwise.
impl<K: IntoKey, E: Into<KeyRejection>> IntoKey for Result<K, E> {
    fn into_key(self) -> Extracted {
        self.map_err(Into::into)?.into_key()
    }
}

/// Why a request that needs a lock has no key.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum KeyRejection {
    /// The request is at fault: a part that makes up the key is missing or malformed.
    #[error("the request has no usable key: {0}")]
    Request(Arc<dyn Error + Send + Sync>),
    /// The request has more of what the key is in than the layer reads.
    #[error("the request has over {limit} bytes, and its key is somewhere in them")]
    TooLarge {
        /// How many bytes the layer reads.
        limit: usize,
    },
    /// The part of the request that the key is in did not arrive in time.
    #[error("the request did not arrive within {limit:?}, and its key is somewhere in it")]
    TooSlow {
        /// How long the layer waited for it.
        limit: Duration,
    },
    /// The layer is at fault: it looks for something that no request can have here.
    #[error("the lock layer is misconfigured: {0}")]
    Layer(Arc<dyn Error + Send + Sync>),
}

impl KeyRejection {
    /// Creates the rejection of a request that is at fault.
    pub fn request(error: impl Into<BoxError>) -> Self {
        Self::Request(error.into().into())
    }

    /// Creates the rejection for a layer that is at fault.
    pub fn layer(error: impl Into<BoxError>) -> Self {
        Self::Layer(error.into().into())
    }
}

/// Blames the request: its parts make no key.
impl From<KeyError> for KeyRejection {
    fn from(error: KeyError) -> Self {
        Self::request(error.to_string())
    }
}

impl From<BoxError> for KeyRejection {
    fn from(error: BoxError) -> Self {
        Self::request(error)
    }
}

impl From<&str> for KeyRejection {
    fn from(message: &str) -> Self {
        Self::request(message)
    }
}

impl From<String> for KeyRejection {
    fn from(message: String) -> Self {
        Self::request(message)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn extract<K: IntoKey>(key: impl Fn(&u32) -> K) -> Extracted {
        let (request, key) = key.extract(7).now_or_never().expect("nothing to wait for");
        assert_eq!(request, 7, "it is given back");
        key
    }

    #[test]
    fn closures_return_keys_of_many_kinds() {
        let seven = Some(LockRequest::new("7"));
        assert_eq!(extract(|it| it.to_string()).unwrap(), seven);
        assert_eq!(extract(|_| "7").unwrap(), seven);
        assert_eq!(extract(|it| *it).unwrap(), seven);
        assert_eq!(extract(|it| i64::from(*it)).unwrap(), seven);
        assert_eq!(extract(|it| it.to_string().into_bytes()).unwrap(), seven);
        assert_eq!(extract(|it| Some(it.to_string())).unwrap(), seven);
        assert_eq!(extract(|_| None::<String>).unwrap(), None);
        assert_eq!(extract(|_| Ok::<_, BoxError>("7")).unwrap(), seven);
    }

    #[test]
    fn errors_say_whose_fault_it_is() {
        let error = extract(|_| Err::<String, _>("no account")).unwrap_err();
        assert!(matches!(error, KeyRejection::Request(_)), "{error}");
        assert!(error.to_string().ends_with("no account"));
        let error = extract(|_| Err::<String, _>(KeyRejection::layer("no such part")));
        assert!(matches!(error, Err(KeyRejection::Layer(_))));
    }

    #[test]
    fn a_key_of_parts_is_one_key() {
        let order = |tenant: &'static str| {
            move |order: &u32| Key::parts(["order", tenant, &order.to_string()])
        };
        let wanted = extract(order("a:b")).unwrap();
        assert_eq!(wanted, Some(LockRequest::new(r"order:a\:b:7")));
        let error = extract(order("")).unwrap_err();
        assert!(matches!(error, KeyRejection::Request(_)), "{error}");
        assert!(error.to_string().contains("part 1"), "{error}");
    }
}
