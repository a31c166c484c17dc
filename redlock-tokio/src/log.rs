//! The macros of `tracing`, with the target of all that the crates log. The subscriber is code of the user: if it panics, the
//! line is missing, and nothing else.

macro_rules! error_ {
    ($($event:tt)*) => {{ $crate::foreign::call(|| tracing::error! { target: "redlock", $($event)* }); }};
}

macro_rules! warn_ {
    ($($event:tt)*) => {{ $crate::foreign::call(|| tracing::warn! { target: "redlock", $($event)* }); }};
}

macro_rules! info_ {
    ($($event:tt)*) => {{ $crate::foreign::call(|| tracing::info! { target: "redlock", $($event)* }); }};
}

macro_rules! debug_ {
    ($($event:tt)*) => {{ $crate::foreign::call(|| tracing::debug! { target: "redlock", $($event)* }); }};
}

// `warn` alone is also an attribute of the compiler.
pub(crate) use {debug_ as debug, error_ as error, info_ as info, warn_ as warn};
