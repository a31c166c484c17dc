use crate::HeldLock;

/// Gives the inner service access to the lock it runs under.
///
/// Implemented for `()`, which does nothing, and for closures `Fn(&mut Request, HeldLock)`, which put
/// the lock wherever the request has room for it.
pub trait ShareHold<Request> {
    /// Called with the lock held, before the inner service is.
    fn share(&self, request: &mut Request, lock: HeldLock);
}

impl<Request> ShareHold<Request> for () {
    fn share(&self, _request: &mut Request, _lock: HeldLock) {}
}

impl<F, Request> ShareHold<Request> for F
where
    F: Fn(&mut Request, HeldLock),
{
    fn share(&self, request: &mut Request, lock: HeldLock) {
        self(request, lock);
    }
}
