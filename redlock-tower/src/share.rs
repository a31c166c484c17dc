use redlock_tokio::Hold;

/// Gives the inner service access to the lock it runs under.
///
/// Implemented for `()`, which does nothing, and for closures `Fn(&mut Request, Hold)`, which put
/// the view of the lock wherever the request has room for it.
pub trait ShareHold<Request> {
    /// Called with the lock held, before the inner service is.
    fn share(&self, request: &mut Request, hold: Hold);
}

impl<Request> ShareHold<Request> for () {
    fn share(&self, _request: &mut Request, _hold: Hold) {}
}

impl<F, Request> ShareHold<Request> for F
where
    F: Fn(&mut Request, Hold),
{
    fn share(&self, request: &mut Request, hold: Hold) {
        self(request, hold);
    }
}
