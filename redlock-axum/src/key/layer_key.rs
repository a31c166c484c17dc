use std::sync::{Arc, Once};

use axum::{
    body::{Body, HttpBody},
    http::Method,
};
use redlock_tokio::Redlock;
use redlock_tower::{CallerDeadline, ExtractKey, Extracted, LockRequest};

use super::{BodyLimit, Methods, RequestKey, body::BodyHasArrived};
use crate::{Locked, Request};

/// What a layer does with the keys of requests.
#[derive(Clone)]
pub(crate) struct KeyRules {
    pub(crate) methods: Methods,
    pub(crate) redlock: Redlock,
    /// Added to the keys here and not further in, so that they can be compared to the keys of outer layers.
    pub(crate) prefix: Arc<[u8]>,
    /// How many requests with one key may run at once, if more than one.
    pub(crate) permits: Option<usize>,
    /// Whether requests with safe methods read, and others write.
    pub(crate) reads_and_writes: bool,
    /// How much of a body to read before the wait for the lock. `None` leaves the body to the handler.
    pub(crate) body_limit: Option<BodyLimit>,
    /// The label of the layer, for the log.
    pub(crate) label: &'static str,
    /// Whether the log has a warning of two layers with one key.
    warned: Arc<Once>,
}

impl KeyRules {
    fn need_lock(&self, method: &Method) -> bool {
        match self.methods {
            Methods::Unsafe if self.reads_and_writes => true,
            _ => self.methods.need_lock(method),
        }
    }

    /// Returns how the layer shares the key of a request.
    fn sharing(&self, method: &Method) -> LockRequest {
        let mut sharing = LockRequest::all([""; 0]);
        if let Some(permits) = self.permits {
            sharing = sharing.permits(permits);
        }
        match self.reads_and_writes {
            true if Methods::reads(method) => sharing.read(),
            true => sharing.write(),
            false => sharing,
        }
    }

    /// Adds the prefix and the way of sharing, and leaves out the keys that outer layers hold for this request. Returns
    /// `None` if they hold all of them.
    fn missing(&self, wanted: LockRequest, request: &Request) -> Extracted {
        let wanted = wanted.prefix(&self.prefix);
        let wanted = wanted.or(&self.sharing(request.method()));
        let Some(outer) = request.extensions().get::<Locked>() else {
            return Ok(Some(wanted));
        };
        let is_held = wanted
            .keys()
            .map(|key| outer.serves(&wanted, key, &self.redlock))
            .collect::<Result<Vec<_>, _>>()?;
        if !is_held.contains(&true) {
            return Ok(Some(wanted));
        }
        // A client can cause this with two equal values. So it is not an error, and is logged once.
        self.warned.call_once(|| {
            tracing::warn!(
                target: "redlock",
                label = self.label,
                "two lock layers around one handler want the same key; the inner one relies on the lock of the outer \
                 one. Layers that lock resources of one kind one after the other can deadlock: give one layer a tuple \
                 of both keys. This warning is not repeated"
            );
        });
        let mut is_held = is_held.into_iter();
        Ok(wanted.retain_keys(|_| is_held.next() != Some(true)))
    }

    /// Returns how much of the body to read, if the request has a body that may still arrive.
    fn body_limit_of(&self, request: &mut Request) -> Option<BodyLimit> {
        // Removed, because a middleware further in may replace the body.
        let has_arrived = request.extensions_mut().remove::<BodyHasArrived>();
        let may_arrive = has_arrived.is_none() && !request.body().is_end_stream();
        self.body_limit.filter(|_| may_arrive)
    }
}

/// Finds the key of a request by the rules of a layer.
#[derive(Clone)]
pub(crate) struct LayerKey<K> {
    key: K,
    rules: Arc<KeyRules>,
}

impl<K> LayerKey<K> {
    pub(crate) fn new(key: K, redlock: Redlock) -> Self {
        let rules = KeyRules {
            methods: Methods::Unsafe,
            redlock,
            prefix: Arc::default(),
            permits: None,
            reads_and_writes: false,
            body_limit: Some(BodyLimit::DEFAULT),
            label: "default",
            warned: Arc::new(Once::new()),
        };
        Self {
            key,
            rules: Arc::new(rules),
        }
    }

    pub(crate) fn rules(&self) -> &KeyRules {
        &self.rules
    }

    pub(crate) fn rules_mut(&mut self) -> &mut KeyRules {
        Arc::make_mut(&mut self.rules)
    }
}

impl<K: RequestKey> ExtractKey<Request> for LayerKey<K> {
    async fn extract(&self, request: Request) -> (Request, Extracted) {
        if !self.rules.need_lock(request.method()) {
            return (request, Ok(None));
        }
        let deadline = CallerDeadline::of(&request);
        let (mut request, wanted) = self.key.extract(request).await;
        let body_limit = self.rules.body_limit_of(&mut request);
        let wanted = match wanted {
            Ok(Some(wanted)) => self.rules.missing(wanted, &request),
            other => other,
        };
        let Ok(Some(mut wanted)) = wanted else {
            return (request, wanted);
        };
        if let Some(limit) = body_limit {
            let (head, body) = request.into_parts();
            match limit.read(body, deadline).await {
                Ok(body) => request = Request::from_parts(head, body.into()),
                Err(rejection) => {
                    return (Request::from_parts(head, Body::empty()), Err(rejection));
                }
            }
        }
        if let Some(deadline) = deadline {
            wanted = wanted.wait_at_most(deadline.remaining());
        }
        (request, Ok(Some(wanted)))
    }
}
