use std::{fmt, time::Duration};

use redlock_tokio::{Hold, LockOptions};
use smallvec::{SmallVec, smallvec};

use crate::KeyRejection;

/// The keys that a request wants to lock, and the options.
///
/// ```
/// use std::time::Duration;
///
/// use redlock_tokio::Key;
/// use redlock_tower::LockRequest;
///
/// // One key, with a waiting time of its own.
/// let one = LockRequest::new("order:42").wait(Duration::from_secs(1));
/// assert!(one.keys().eq([b"order:42"]));
///
/// // Two keys: both are locked, or none.
/// let both = LockRequest::all(["account:7", "account:3"]);
/// assert_eq!(both.keys().count(), 2);
///
/// // One key of three parts.
/// let order = LockRequest::new(Key::parts(["order", "acme", "42"])?);
/// assert_eq!(order, LockRequest::new("order:acme:42"));
/// # Ok::<_, redlock_tokio::errors::KeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[must_use]
pub struct LockRequest {
    /// Most requests have one, which needs no list.
    pub(crate) keys: SmallVec<[Vec<u8>; 1]>,
    /// How many requests with this key may run at once, if more than one.
    pub(crate) permits: Option<usize>,
    pub(crate) access: Option<Access>,
    pub(crate) options: LockOptions,
}

/// The command of a request for a key that readers share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl LockRequest {
    /// Creates a request for one key: bytes, or a [`Key`](redlock_tokio::Key), such as
    /// [`Key::parts`](redlock_tokio::Key::parts) makes.
    pub fn new(key: impl Into<Vec<u8>>) -> Self {
        Self::of(smallvec![key.into()])
    }

    /// Creates a request for several keys in any order. All of them are locked, or none.
    pub fn all<I>(keys: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<Vec<u8>>,
    {
        Self::of(keys.into_iter().map(Into::into).collect())
    }

    fn of(keys: SmallVec<[Vec<u8>; 1]>) -> Self {
        Self {
            keys,
            permits: None,
            access: None,
            options: LockOptions::new(),
        }
    }

    /// Adds the keys of another request. All keys are locked, or none.
    ///
    /// Where both requests set an option, the other request's is used; of two [bounds](Self::wait_at_most), the
    /// shorter. If one of the requests has no key, the result has none either, and is refused.
    pub fn and(mut self, mut other: Self) -> Self {
        let mut keys = std::mem::take(&mut self.keys);
        if keys.is_empty() || other.keys.is_empty() {
            keys.clear();
        } else {
            keys.append(&mut other.keys);
        }
        other.keys = keys;
        other.or(&self)
    }

    /// Takes the options that are not set here from another request, and the way of sharing: permits, reading or
    /// writing. The keys stay as they are.
    pub fn or(self, other: &Self) -> Self {
        Self {
            keys: self.keys,
            permits: self.permits.or(other.permits),
            access: self.access.or(other.access),
            options: self.options.or(other.options),
        }
    }

    /// Lets up to `permits` requests with this key run at once, in the whole fleet: the request takes a permit of the
    /// [semaphore](redlock_tokio::Redlock::semaphore) with this key instead of a lock. There can be 1 to 128 permits.
    ///
    /// A request for several keys cannot take permits: the call fails with [`KeyRejection::Layer`].
    pub fn permits(mut self, permits: usize) -> Self {
        self.permits = Some(permits);
        self
    }

    /// Lets this request share its key with others that read: it takes the lock of a
    /// [reader](redlock_tokio::RedlockRwLock::read). Requests that [write](Self::write), and plain locks of this key,
    /// keep it out, and are kept out by it. Costs one round trip, or none if a reader of this process has acquired the
    /// lock a short time ago.
    ///
    /// Reading cannot be fenced: with [`fenced`](Self::fenced) the call fails with
    /// [`CallError::Misconfigured`](crate::CallError::Misconfigured), while a layer that is
    /// [fenced](crate::LockLayer::fenced) fences only the calls that do not read. With several keys, or together with
    /// [`permits`](Self::permits), the call fails with [`KeyRejection::Layer`].
    ///
    /// ```
    /// use redlock_tower::LockRequest;
    ///
    /// enum Job {
    ///     Search,
    ///     Rebuild,
    /// }
    ///
    /// let key = |job: &Job| {
    ///     let catalogue = LockRequest::new("catalogue");
    ///     match job {
    ///         Job::Search => catalogue.read(),
    ///         Job::Rebuild => catalogue.write(),
    ///     }
    /// };
    /// # let _ = (key(&Job::Search), key(&Job::Rebuild));
    /// ```
    pub fn read(mut self) -> Self {
        self.access = Some(Access::Read);
        self
    }

    /// Takes the lock of a [writer](redlock_tokio::RedlockRwLock::write). It excludes all others, as a plain lock does,
    /// but while it waits, it also keeps new [readers](Self::read) out. A plain lock may starve behind them.
    ///
    /// A request for several keys takes plain locks. Together with [`permits`](Self::permits), the call fails with
    /// [`KeyRejection::Layer`].
    pub fn write(mut self) -> Self {
        self.access = Some(Access::Write);
        self
    }

    /// Sets options for this request. Options that are not set here keep their earlier value, and then fall back
    /// to the layer's.
    pub fn options(self, options: LockOptions) -> Self {
        Self {
            options: options.or(self.options),
            ..self
        }
    }

    /// Sets how long this request [waits](LockOptions::wait).
    pub fn wait(self, wait: Duration) -> Self {
        self.options(LockOptions::new().wait(wait))
    }

    /// Limits how long this request [waits](LockOptions::wait_at_most), whatever its layer says: a lock is of no
    /// use to a caller that has given up.
    ///
    /// `CallerDeadline` (feature `http`) finds the caller's deadline in a request.
    pub fn wait_at_most(self, bound: Duration) -> Self {
        self.options(LockOptions::new().wait_at_most(bound))
    }

    /// Sets whether this request's lock has a [fencing token](LockOptions::fenced), which fences all its keys.
    pub fn fenced(self, fenced: bool) -> Self {
        self.options(LockOptions::new().fenced(fenced))
    }

    /// Keeps only the keys for which `keep` is true. Returns `None` if none is left.
    #[must_use]
    pub fn retain_keys(mut self, mut keep: impl FnMut(&[u8]) -> bool) -> Option<Self> {
        self.keys.retain(|key| keep(key));
        (!self.keys.is_empty()).then_some(self)
    }

    /// Returns the keys, in the order in which they were given.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(Vec::as_slice)
    }

    /// Returns whether a lock of one of the keys, held by somebody further out on the way of this request, serves the
    /// request as well. The lock of a reader serves a request that reads, and a permit one that takes permits.
    ///
    /// # Errors
    ///
    /// Fails with [`KeyRejection::Layer`] if the lock is that of a reader, and this request wants the key alone: it
    /// would wait for itself.
    pub fn is_served_by(&self, hold: &Hold) -> Result<bool, KeyRejection> {
        match (self.permits, hold.slot()) {
            (Some(permits), slot) => Ok(slot.is_some_and(|slot| slot < permits)),
            (None, Some(_)) => Ok(false),
            (None, None) if hold.is_reader() && self.access != Some(Access::Read) => {
                Err(KeyRejection::layer(
                    "the request reads this key already, for a layer further out, and would wait for itself",
                ))
            }
            (None, None) => Ok(true),
        }
    }

    /// Puts a prefix in front of each key. An empty key stays empty, so that it is still refused.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        for key in self.keys.iter_mut().filter(|key| !key.is_empty()) {
            key.splice(..0, prefix.as_ref().iter().copied());
        }
        self
    }
}

/// Shows how many keys there are, but not the keys, just as [`Key`](redlock_tokio::Key) does.
impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRequest")
            .field("keys", &self.keys().count())
            .field("permits", &self.permits)
            .field("access", &self.access)
            .field("options", &self.options)
            .finish()
    }
}
