use std::sync::Arc;

use axum::{
    RequestExt,
    extract::{MatchedPath, RawPathParams, Request},
};
use futures::FutureExt;
use redlock_tower::{ExtractKey, KeyRejection};

/// Takes the key from a path parameter: on the route `/events/{event}/tickets`, the key of
/// `path("event")` for `/events/rock%20am%20see/tickets` is `event:rock am see`.
///
/// The parameter's name goes in front, so that order 42 and customer 42 are different resources.
/// Where two routes call the same resource by different names, or different resources by the same
/// name, give the layer a [scope](PathKey::scope).
pub fn path(parameter: impl Into<String>) -> PathKey {
    let parameter = parameter.into();
    PathKey {
        scope: parameter.clone(),
        parameter,
    }
}

/// Takes the key from a path parameter. Made by [`path`].
///
/// The parameter's value is percent-decoded, so that `a%2Fb` and `a%2fb` are one resource. Requests
/// that no route matched pass without a lock.
#[derive(Clone, Debug)]
pub struct PathKey {
    parameter: String,
    scope: String,
}

impl PathKey {
    /// Sets what goes in front of the value instead of the parameter's name.
    #[must_use]
    pub fn scope(self, scope: impl Into<String>) -> Self {
        Self {
            scope: scope.into(),
            ..self
        }
    }
}

impl ExtractKey<Request> for PathKey {
    fn extract(&self, request: &mut Request) -> Result<Option<Vec<u8>>, KeyRejection> {
        let Some(route) = request.extensions().get::<MatchedPath>().cloned() else {
            return Ok(None);
        };
        // The parameters are in the request already; nothing is waited for.
        let params = request
            .extract_parts::<RawPathParams>()
            .now_or_never()
            .ok_or_else(|| KeyRejection::layer("the path parameters are not at hand"))?
            .map_err(|error| KeyRejection::request(error.to_string()))?;
        for (name, value) in &params {
            if name == self.parameter {
                return Ok(Some(format!("{}:{value}", self.scope).into_bytes()));
            }
        }
        Err(KeyRejection::layer(format!(
            "the route `{}` has no path parameter `{}`; \
             put the layer on the routes that have one, with route_layer",
            route.as_str(),
            self.parameter
        )))
    }
}

/// A key that requests with safe methods do not need.
#[derive(Debug)]
pub(crate) struct MethodKey<K> {
    key: Arc<K>,
    all_methods: bool,
}

impl<K> MethodKey<K> {
    pub(crate) fn new(key: Arc<K>, all_methods: bool) -> Self {
        Self { key, all_methods }
    }
}

impl<K> Clone for MethodKey<K> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.key), self.all_methods)
    }
}

impl<K: ExtractKey<Request>> ExtractKey<Request> for MethodKey<K> {
    fn extract(&self, request: &mut Request) -> Result<Option<Vec<u8>>, KeyRejection> {
        if self.all_methods || !request.method().is_safe() {
            self.key.extract(request)
        } else {
            Ok(None)
        }
    }
}
