mod tuple;

use std::future::ready;

use redlock_tokio::Key;

use crate::{KeyRejection, LockRequest};

/// The result of an extraction: what to lock for a request. With `None` the request passes without a lock.
pub type Extracted = Result<Option<LockRequest>, KeyRejection>;

/// Finds the key of a request: the resource that the request is about.
///
/// Implemented for closures `Fn(&Request) -> K`, where `K` is an [`IntoKey`]: an owned string or bytes, an integer,
/// a [`Key`], a [`LockRequest`], or an `Option` or a `Result` of one of them. (The key must be owned, because the
/// request moves on to the inner service.)
///
/// A tuple of two to four extractors makes *several keys*, and all of them are locked. That differs from one key of
/// several parts, which a closure makes with [`Key::parts`]. With the two keys `(tenant, order)`, all orders of a
/// tenant wait for each other. With the one key `Key::parts(["order", tenant, order])`, only requests for the same
/// order do. If several members of a tuple set the same option, the last one counts.
///
/// ```
/// use redlock_tower::{ExtractKey, LockRequest};
///
/// struct Transfer {
///     from: u64,
///     to: u64,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let from = |it: &Transfer| format!("account:{}", it.from);
/// let to = |it: &Transfer| format!("account:{}", it.to);
///
/// let (transfer, key) = from.extract(Transfer { from: 7, to: 3 }).await;
/// assert_eq!(key?, Some(LockRequest::new("account:7")));
///
/// let (_, keys) = (from, to).extract(transfer).await;
/// assert_eq!(keys?, Some(LockRequest::all(["account:7", "account:3"])));
/// # Ok(())
/// # }
/// ```
pub trait ExtractKey<Request> {
    /// Finds the key of a request. Write it as an `async fn`.
    ///
    /// Takes the request and returns it, so that an extractor can read the body. A [`KeyRejection`] says whether the
    /// request or the layer is at fault.
    fn extract(&self, request: Request) -> impl Future<Output = (Request, Extracted)> + Send;
}

impl<F, Request, K> ExtractKey<Request> for F
where
    F: Fn(&Request) -> K,
    K: IntoKey,
    Request: Send,
{
    fn extract(&self, request: Request) -> impl Future<Output = (Request, Extracted)> + Send {
        let key = self(&request).into_key();
        ready((request, key))
    }
}

/// A value that a key closure may return.
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
    /// Returns why the request has no key although it needs one.
    fn into_key(self) -> Extracted;
}

impl IntoKey for LockRequest {
    fn into_key(self) -> Extracted {
        Ok(Some(self))
    }
}

macro_rules! bytes_are_keys {
    ($($bytes:ty)*) => {$(
        impl IntoKey for $bytes {
            fn into_key(self) -> Extracted {
                LockRequest::new(self).into_key()
            }
        }
    )*};
}

bytes_are_keys!(Key Vec<u8> &[u8] String &str);

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

/// With `None` the request passes without a lock.
impl<K: IntoKey> IntoKey for Option<K> {
    fn into_key(self) -> Extracted {
        self.map_or(Ok(None), IntoKey::into_key)
    }
}

/// An error blames the request, unless it is a [`KeyRejection`] that blames the layer.
impl<K: IntoKey, E: Into<KeyRejection>> IntoKey for Result<K, E> {
    fn into_key(self) -> Extracted {
        self.map_err(Into::into)?.into_key()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::BoxError;

    fn extract<K: IntoKey>(key: impl Fn(&u32) -> K) -> Extracted {
        let (request, key) = key.extract(7).now_or_never().expect("no wait");
        assert_eq!(request, 7, "the request is returned");
        key
    }

    #[test]
    fn closures_return_keys_of_many_kinds() {
        let seven = Some(LockRequest::new("7"));
        assert_eq!(extract(|number| number.to_string()).unwrap(), seven);
        assert_eq!(extract(|_| "7").unwrap(), seven);
        assert_eq!(extract(|number| *number).unwrap(), seven);
        assert_eq!(extract(|number| i64::from(*number)).unwrap(), seven);
        assert_eq!(
            extract(|number| number.to_string().into_bytes()).unwrap(),
            seven
        );
        assert_eq!(extract(|number| Some(number.to_string())).unwrap(), seven);
        assert_eq!(extract(|_| None::<String>).unwrap(), None);
        assert_eq!(extract(|_| Ok::<_, BoxError>("7")).unwrap(), seven);
    }
}
