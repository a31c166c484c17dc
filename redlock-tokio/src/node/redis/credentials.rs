use std::fmt;

use super::{
    address::Endpoint,
    callback::{Callback, text_of},
};
use crate::node::NodeError;

/// A user and a password, with which one connection authenticates.
///
/// `Debug` does not show the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: String,
    password: String,
}

/// Asks the user of this crate for the credentials of a new connection.
pub(crate) type CredentialsCallback = Callback<Credentials>;

impl Credentials {
    /// Creates credentials. The user of a server that has only a password is `default`.
    ///
    /// ```
    /// use redlock_tokio::Credentials;
    ///
    /// let credentials = Credentials::new("default", "hunter2");
    /// assert!(!format!("{credentials:?}").contains("hunter2"));
    /// ```
    #[must_use]
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self {
            user: user.into(),
            password: password.into(),
        }
    }

    pub(super) fn user(&self) -> &str {
        &self.user
    }

    pub(super) fn password(&self) -> &str {
        &self.password
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl CredentialsCallback {
    pub(super) async fn ask(&self, endpoint: &Endpoint) -> Result<Credentials, NodeError> {
        self.call(endpoint)
            .await
            .map_err(|error| NodeError::Credentials(text_of(&*error)))
    }
}
