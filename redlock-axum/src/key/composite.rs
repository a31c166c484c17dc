use axum::http::request::Parts as RequestParts;
use futures::{FutureExt, future::BoxFuture};
use redlock_tower::{ExtractKey, Extracted, KeyRejection};

use super::{
    PartKey,
    part::{Found, key_of},
};
use crate::Request;

/// One key that is made of several parts of a request, such as the tenant in a header and the order in the
/// path: `Parts::new("order", [header("x-tenant"), path("order")])`. They are joined so that different parts
/// never make the same key; see [`LockRequest::parts`](redlock_tower::LockRequest::parts). A value that is
/// empty is none.
///
/// A tuple instead makes as many keys, and locks all of them; see [`RequestKey`](crate::RequestKey).
#[derive(Clone, Debug)]
pub struct Parts {
    scope: String,
    parts: Vec<PartKey>,
}

impl Parts {
    /// Joins parts of a request to one key.
    pub fn new(scope: impl Into<String>, parts: impl IntoIterator<Item = PartKey>) -> Self {
        Self {
            scope: scope.into(),
            parts: parts.into_iter().collect(),
        }
    }

    /// Reads all parts; a request for which one is missing without fault needs no lock.
    async fn read(&self, head: &mut RequestParts) -> Result<Option<Vec<String>>, KeyRejection> {
        if self.parts.is_empty() {
            let error = "a key of no parts would be the same for all requests";
            return Err(KeyRejection::layer(error));
        }
        let mut values = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let found: Found = part.read(head).await;
            match found? {
                Some(value) => values.push(value),
                None => return Ok(None),
            }
        }
        Ok(Some(values))
    }
}

impl ExtractKey<Request> for Parts {
    type Future = BoxFuture<'static, (Request, Extracted)>;

    fn extract(&self, request: Request) -> Self::Future {
        let it = self.clone();
        async move {
            let (mut head, body) = request.into_parts();
            let values = it.read(&mut head).await;
            let wanted = values
                .and_then(|values| values.map(|values| key_of(&it.scope, &values)).transpose());
            (Request::from_parts(head, body), wanted)
        }
        .boxed()
    }
}
