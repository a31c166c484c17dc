//! The test kit: its servers, sentinels, clusters and proxies do what their documentation says.

mod cluster;
mod proxy;
mod sentinels;
