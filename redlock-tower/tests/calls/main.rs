//! Calls behind a layer.

#[cfg(feature = "http")]
mod bodies;
#[cfg(feature = "tonic")]
mod grpc;
mod layer;
mod modes;
mod overload;
mod support;
#[cfg(all(feature = "http", feature = "metrics"))]
mod telemetry;
