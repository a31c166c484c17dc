use crate::Locked;

/// Passes the lock to the inner service, inside the request.
///
/// Implemented for `()`, which does nothing, and for closures `Fn(&mut Request, Locked)`, which store the lock in
/// the request. [`Locked`] has an example.
pub trait ShareHold<Request> {
    /// Stores the lock in the request. Called once the lock is held, before the inner service is called.
    fn share(&self, request: &mut Request, lock: Locked);
}

impl<Request> ShareHold<Request> for () {
    fn share(&self, _request: &mut Request, _lock: Locked) {}
}

impl<F, Request> ShareHold<Request> for F
where
    F: Fn(&mut Request, Locked),
{
    fn share(&self, request: &mut Request, lock: Locked) {
        self(request, lock);
    }
}
