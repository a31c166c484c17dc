use std::error::Error;

/// A result whose error is a failure of the test bed, in words.
pub(crate) type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;
