use std::{error::Error, panic::AssertUnwindSafe, sync::Arc};

use futures::{FutureExt, future::BoxFuture};

use super::{address::Endpoint, server_error::shorten};

pub(crate) type CallbackError = Box<dyn Error + Send + Sync>;

type Function<T> = dyn Fn(String) -> BoxFuture<'static, Result<T, CallbackError>> + Send + Sync;

/// An async function of the user, which is called for each new connection, with the address of the server.
pub(crate) struct Callback<T>(Arc<Function<T>>);

impl<T> Callback<T> {
    pub(crate) fn new<F, Fut, E>(function: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
        E: Into<CallbackError>,
    {
        Self(Arc::new(move |address| {
            let answer = function(address);
            async { answer.await.map_err(Into::into) }.boxed()
        }))
    }

    /// Calls the function. A panic of the function is an error, because it must not end the task of a lane.
    pub(super) async fn call(&self, endpoint: &Endpoint) -> Result<T, CallbackError> {
        let address = endpoint.to_string();
        let answer = AssertUnwindSafe(async { (self.0)(address).await });
        let panicked = |_| Err("the function panicked".into());
        answer.catch_unwind().await.unwrap_or_else(panicked)
    }
}

impl<T> Clone for Callback<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Returns the text of an error with the texts of its sources, as far as they say more.
pub(super) fn text_of(error: &(dyn Error + 'static)) -> Arc<str> {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    shorten(text).into()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("no token")]
    struct NoToken(#[source] io::Error);

    #[test]
    fn the_text_of_an_error_names_each_cause_once() {
        let error = NoToken(io::Error::other("the host is down"));
        assert_eq!(&*text_of(&error), "no token: the host is down");
        let error = io::Error::other(NoToken(io::Error::other("no token")));
        assert_eq!(&*text_of(&error), "no token");
    }
}
