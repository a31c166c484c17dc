use std::{fmt, sync::Arc};

use redlock_core::Token;

use crate::{client_name::ClientName, key::shown};

/// A client that has a key, as far as the key's value tells.
///
/// `Display` shows the [name](Self::client_name), or the beginning of the value if there is none.
///
/// ```
/// use redlock_tokio::Holder;
///
/// let value = format!("{}@web-3", "00000000000000000000000000000abc00000001");
/// let holder = Holder::new(value.into_bytes());
/// assert_eq!(holder.client_name(), Some("web-3"));
/// assert_eq!(holder.to_string(), "web-3");
/// assert_eq!(Holder::new(*b"another library").client_name(), None);
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(Arc<[u8]>);

impl Holder {
    /// How much of a value without a name is shown.
    const SHOWN: usize = 48;

    /// Creates a holder whose keys have this value.
    #[doc(hidden)]
    #[must_use]
    pub fn new(value: impl Into<Arc<[u8]>>) -> Self {
        Self(value.into())
    }

    /// Returns the value of the key.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        &self.0
    }

    /// Returns the [name](crate::RedlockBuilder::client_name) of the client. `None` for a client without one, and for
    /// one of another library.
    #[must_use]
    pub fn client_name(&self) -> Option<&str> {
        self.token()?;
        let name = self.0[Token::LEN..].strip_prefix(&[ClientName::SEPARATOR])?;
        // Another program may have written anything there.
        let name = str::from_utf8(name).ok()?;
        let is_name = ClientName::new(name).is_ok_and(|it| it != ClientName::NONE);
        is_name.then_some(name)
    }

    /// Returns the token of the lock. `None` for a client of another library, unless its values look like this crate's.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        Token::from_ascii(&self.0)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.client_name() {
            Some(name) => f.write_str(name),
            None if self.0.len() <= Self::SHOWN => f.write_str(&shown(&self.0)),
            None => write!(f, "{}..", shown(&self.0[..Self::SHOWN])),
        }
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Holder({})", self.0.escape_ascii())
    }
}
