//! A guide in pages: a first lock, jobs and leaders, and what people on call need. The guide of `redlock-axum` is about routes.

pub mod first_lock {
    #![doc = include_str!("guide/first_lock.md")]
    use crate::*;
}
pub mod jobs_and_leaders {
    #![doc = include_str!("guide/jobs_and_leaders.md")]
    use crate::*;
}
pub mod on_call {
    #![doc = include_str!("guide/on_call.md")]
    use crate::*;
}
