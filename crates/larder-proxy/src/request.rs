//! Handles one request from its head to its response: decides its route, and executes it.

pub(crate) mod access;
mod accounting;
mod admission;
mod build_cache;
pub(crate) mod change;
mod encode;
pub(crate) mod exchange;
pub(crate) mod explain;
pub(crate) mod failure_page;
pub(crate) mod final_recipient;
mod gate;
pub(crate) mod hit;
pub(crate) mod intercept;
mod nodes;
pub(crate) mod pac;
pub(crate) mod pass;
mod question;
pub(crate) mod refusal;
mod registry;
pub(crate) mod route;
pub(crate) mod serve;
pub(crate) mod served;
pub(crate) mod share;
pub(crate) mod show;
pub(crate) mod tunnel;
pub(crate) mod upgrade;
