//! What operators see and do: the admin listener, the dashboard's history, purges, pins and packs.

pub(crate) mod admin;
pub(crate) mod admin_tokens;
pub(crate) mod history;
pub(crate) mod missing;
pub(crate) mod overview;
pub(crate) mod pack;
pub(crate) mod popular;
pub(crate) mod query_log;
pub(crate) mod readiness;
