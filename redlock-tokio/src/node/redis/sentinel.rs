mod builder;
mod group;
mod question;
mod roster;
mod url;

pub use self::builder::SentinelNodeBuilder;
pub(super) use self::group::SentinelNode;
