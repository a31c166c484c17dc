//! Calls behind a layer.

#[cfg(feature = "http")]
mod bodies;
#[cfg(feature = "tonic")]
mod grpc;
mod layer;
mod modes;
mod overload;
mod support;
