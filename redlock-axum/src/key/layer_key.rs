use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project::pin_project;
use redlock_tokio::Redlock;
use redlock_tower::{CallerDeadline, ExtractKey, Extracted, KeyRejection, LockRequest};

use super::{Methods, RequestKey};
use crate::{Locked, Request};

/// What a layer needs to know to find the key of a request.
pub(crate) struct KeyRules<K> {
    key: Arc<K>,
    pub(crate) methods: Methods,
    pub(crate) redlock: Redlock,
    /// Added to the keys here and not further in, so that they can be compared to the keys of outer layers.
    pub(crate) prefix: Arc<[u8]>,
}

impl<K> KeyRules<K> {
    /// Completes what the user's extractor has found.
    fn complete(
        &self,
        wanted: LockRequest,
        request: &Request,
        deadline: Option<CallerDeadline>,
    ) -> Result<LockRequest, KeyRejection> {
        let wanted = wanted.prefixed(&self.prefix);
        let outer = request.extensions().get::<Locked>();
        if outer.is_some_and(|outer| wanted.keys().any(|key| outer.holds(&self.redlock, key))) {
            return Err(KeyRejection::layer(
                "two lock layers around one handler want the same key: the inner one would wait \
                 for the outer one",
            ));
        }
        Ok(match deadline {
            Some(deadline) => wanted.wait_at_most(deadline.remaining()),
            None => wanted,
        })
    }
}

impl<K> Clone for KeyRules<K> {
    fn clone(&self) -> Self {
        Self {
            key: Arc::clone(&self.key),
            methods: self.methods.clone(),
            redlock: self.redlock.clone(),
            prefix: Arc::clone(&self.prefix),
        }
    }
}

/// Finds the key of a request by the rules of a layer.
pub(crate) struct LayerKey<K>(Arc<KeyRules<K>>);

impl<K> LayerKey<K> {
    pub(crate) fn new(key: K, redlock: Redlock) -> Self {
        Self(Arc::new(KeyRules {
            key: Arc::new(key),
            methods: Methods::Unsafe,
            redlock,
            prefix: Arc::default(),
        }))
    }

    pub(crate) fn rules(&self) -> &KeyRules<K> {
        &self.0
    }

    pub(crate) fn rules_mut(&mut self) -> &mut KeyRules<K> {
        Arc::make_mut(&mut self.0)
    }
}

impl<K> Clone for LayerKey<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: RequestKey> ExtractKey<Request> for LayerKey<K> {
    type Future = LayerKeyFuture<K>;

    fn extract(&self, request: Request) -> Self::Future {
        if !self.0.methods.need_lock(request.method()) {
            return LayerKeyFuture::Pass {
                request: Some(request),
            };
        }
        LayerKeyFuture::Extract {
            rules: Arc::clone(&self.0),
            deadline: CallerDeadline::of(&request),
            extracting: self.0.key.extract(request),
        }
    }

    fn makes_several(&self) -> bool {
        self.0.key.makes_several()
    }
}

/// The future of an extraction.
#[pin_project(project = LayerKeyProjection)]
#[expect(
    clippy::large_enum_variant,
    reason = "a box would cost each request an allocation"
)]
pub(crate) enum LayerKeyFuture<K: RequestKey> {
    /// The request needs no lock. Empty at the end.
    Pass { request: Option<Request> },
    Extract {
        rules: Arc<KeyRules<K>>,
        deadline: Option<CallerDeadline>,
        #[pin]
        extracting: K::Future,
    },
}

impl<K: RequestKey> Future for LayerKeyFuture<K> {
    type Output = (Request, Extracted);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            LayerKeyProjection::Pass { request } => match request.take() {
                Some(request) => Poll::Ready((request, Ok(None))),
                None => Poll::Pending,
            },
            LayerKeyProjection::Extract {
                rules,
                deadline,
                extracting,
            } => {
                let (request, wanted) = ready!(extracting.poll(cx));
                let wanted = match wanted {
                    Ok(Some(wanted)) => rules.complete(wanted, &request, *deadline).map(Some),
                    other => other,
                };
                Poll::Ready((request, wanted))
            }
        }
    }
}
