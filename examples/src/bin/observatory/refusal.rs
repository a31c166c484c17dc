use axum::{
    Json,
    extract::rejection::{JsonRejection, PathRejection},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;
use thiserror::Error;

use crate::name::Name;

/// The error of a request, as problem JSON (RFC 9457).
#[derive(Debug, Error)]
pub(crate) enum Refusal {
    #[error("the nodes are numbered from 0 to {}", .0 - 1)]
    NoNode(usize),
    #[error("there is no client {0}")]
    NoClient(Name),
    #[error("there is a client {0} already")]
    Known(Name),
    #[error("there are {0} clients already, which is the limit; remove one first")]
    Crowd(usize),
    #[error("{0} keys are looked at already, which is the limit")]
    Keys(usize),
    #[error("a client has 1 to {0} tasks")]
    Tasks(u8),
    #[error("a client holds a lock for at most {0} s")]
    Hold(u64),
    #[error("over real nodes this program only looks")]
    OnlyLooks,
    #[error("the keys are those of the clients: add a client")]
    OfClients,
    #[error("{} pages are open already, which is the limit", .0)]
    Pages(usize),
    #[error(transparent)]
    Body(#[from] JsonRejection),
    #[error(transparent)]
    Path(#[from] PathRejection),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::NoNode(_) | Self::NoClient(_) => StatusCode::NOT_FOUND,
            Self::Known(_) | Self::Crowd(_) | Self::Keys(_) | Self::OnlyLooks | Self::OfClients => {
                StatusCode::CONFLICT
            }
            Self::Tasks(_) | Self::Hold(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Pages(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Body(rejection) => rejection.status(),
            Self::Path(rejection) => rejection.status(),
        };
        let detail = match &self {
            Self::Body(rejection) => rejection.body_text(),
            Self::Path(rejection) => rejection.body_text(),
            refusal => refusal.to_string(),
        };
        let problem = json!({
            "title": status.canonical_reason(),
            "status": status.as_u16(),
            "detail": detail,
        });
        let content_type = [(header::CONTENT_TYPE, "application/problem+json")];
        (status, content_type, Json(problem)).into_response()
    }
}
