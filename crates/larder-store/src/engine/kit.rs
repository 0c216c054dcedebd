//! What several engines do in the same way.
//!
//! Does not: name an engine. What only one of them needs is its own.

pub(crate) mod doubts;
pub(crate) mod effects;
pub(crate) mod journal;
pub(crate) mod ledger;
pub(crate) mod lookup;
pub(crate) mod numbers;
pub(crate) mod pack;
pub(crate) mod room;
pub(crate) mod sets;
pub(crate) mod snapshot;
pub(crate) mod state_lock;
pub(crate) mod walk;
