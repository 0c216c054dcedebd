//! Parts that several engines share.
//!
//! Nothing here names an engine. Code that only one engine needs is in that engine.

pub(crate) mod effects;
pub(crate) mod gathering;
pub(crate) mod journal;
pub(crate) mod lookup;
pub(crate) mod map_checkpoint;
pub(crate) mod numbers;
pub(crate) mod pack;
pub(crate) mod room;
pub(crate) mod sets;
pub(crate) mod snapshot;
pub(crate) mod state_lock;
pub(crate) mod suspects;
pub(crate) mod walk;
