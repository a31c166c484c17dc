use crate::{CallGuard, mode::sealed::Sealed};

/// When a call's lock is released: [`AtHead`], or `AtBodyEnd` (feature `http`).
///
/// This trait is sealed: only this crate implements it.
pub trait Release<Response>: Sealed {
    /// The response that goes to the caller.
    type Response;

    /// Releases the lock of a call, if it has one, now or later.
    #[doc(hidden)]
    fn release(&self, response: Response, guard: Option<CallGuard>) -> Self::Response;
}

/// Releases the lock when the inner service has responded, before the caller gets the response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtHead;

impl Sealed for AtHead {}

impl<Response> Release<Response> for AtHead {
    type Response = Response;

    fn release(&self, response: Response, guard: Option<CallGuard>) -> Response {
        if let Some(guard) = guard {
            guard.release();
        }
        response
    }
}
