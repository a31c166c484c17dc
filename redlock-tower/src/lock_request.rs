use std::{fmt, time::Duration};

use redlock_tokio::LockOptions;

/// What a request wants locked, and how.
///
/// ```
/// use std::time::Duration;
/// use redlock_tokio::Key;
/// use redlock_tower::LockRequest;
///
/// let one = LockRequest::new("order:42").wait(Duration::from_secs(1));
/// let both = LockRequest::all(["account:7", "account:3"]); // two keys, both or none
/// let pair = LockRequest::new(Key::parts(["order", "acme", "42"])?); // one key of three parts
/// assert_eq!(pair, LockRequest::new("order:acme:42"));
/// # Ok::<_, redlock_tokio::KeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[must_use]
pub struct LockRequest {
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) options: LockOptions,
}

impl LockRequest {
    /// Wants one key: bytes, or a [`Key`](redlock_tokio::Key), such as
    /// [`Key::parts`](redlock_tokio::Key::parts) makes.
    pub fn new(key: impl Into<Vec<u8>>) -> Self {
        Self {
            keys: vec![key.into()],
            options: LockOptions::new(),
        }
    }

    /// Wants several keys at once, in any order: all of them or none.
    pub fn all<I>(keys: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<Vec<u8>>,
    {
        Self {
            keys: keys.into_iter().map(Into::into).collect(),
            options: LockOptions::new(),
        }
    }

    /// Wants the keys of another request too: all of them or none. Where both set an option, the other's is
    /// taken; of two [bounds](Self::wait_at_most), the shorter. With a request of no keys it is refused, as
    /// that one would be.
    pub fn and(mut self, other: Self) -> Self {
        if self.keys.is_empty() || other.keys.is_empty() {
            self.keys.clear();
        } else {
            self.keys.extend(other.keys);
        }
        self.options(other.options)
    }

    /// Sets options for this request. What they leave open falls back to what was set before, and then
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

    /// Bounds how long this request [waits](LockOptions::wait_at_most): it is for nothing once the caller
    /// has given up. See `CallerDeadline` (feature `http`) for what HTTP requests say of that.
    pub fn wait_at_most(self, bound: Duration) -> Self {
        self.options(LockOptions::new().wait_at_most(bound))
    }

    /// Sets the [time to live](LockOptions::ttl) of this request's lock; at most
    /// [`RedlockBuilder::max_ttl`](redlock_tokio::RedlockBuilder::max_ttl), 10 s unless it is set.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.options(LockOptions::new().ttl(ttl))
    }

    /// Acquires this request's lock with a [fencing token](LockOptions::fenced). A request of several keys is
    /// refused then.
    pub fn fenced(self) -> Self {
        self.options(LockOptions::new().fenced())
    }

    /// Returns the keys.
    #[must_use]
    pub fn keys(&self) -> &[Vec<u8>] {
        &self.keys
    }

    /// Puts a prefix in front of each key. An empty key stays empty, to be refused.
    pub fn prefixed(mut self, prefix: impl AsRef<[u8]>) -> Self {
        for key in self.keys.iter_mut().filter(|key| !key.is_empty()) {
            key.splice(..0, prefix.as_ref().iter().copied());
        }
        self
    }
}

/// Shows how many keys there are and not which, as [`Key`](redlock_tokio::Key) does.
impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRequest")
            .field("keys", &self.keys.len())
            .field("options", &self.options)
            .finish()
    }
}
