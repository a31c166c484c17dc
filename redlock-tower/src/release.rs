use crate::Holding;

/// When a call's lock is released: with its response, or later.
///
/// [`AtHead`] for any response; `AtBodyEnd` (feature `http`) for responses with a body that goes on.
pub trait Release<Response> {
    /// The response that goes on to the caller.
    type Response;

    /// [Releases](Holding::release) the lock, now or with the response's end.
    fn release(&self, response: Response, holding: Option<Holding>) -> Self::Response;
}

/// Releases the lock as soon as the inner service has answered, and before its caller hears of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtHead;

impl<Response> Release<Response> for AtHead {
    type Response = Response;

    fn release(&self, response: Response, holding: Option<Holding>) -> Response {
        if let Some(holding) = holding {
            holding.release();
        }
        response
    }
}
