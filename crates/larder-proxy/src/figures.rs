//! Figures about the proxy at work: its counters, their export, and the access log.

pub(crate) mod access_log;
pub(crate) mod exposition;
pub(crate) mod log_format;
pub(crate) mod metrics;
pub(crate) mod outcome;
pub(crate) mod site_figures;
pub(crate) mod times;
