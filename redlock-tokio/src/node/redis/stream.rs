use tokio::io::{AsyncRead, AsyncWrite};

use super::callback::Callback;

/// The stream that carries the commands of one connection.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

pub(super) type BoxedStream = Box<dyn Stream>;

/// Asks the user of this crate for the stream of a new connection.
pub(super) type StreamCallback = Callback<(), BoxedStream>;
