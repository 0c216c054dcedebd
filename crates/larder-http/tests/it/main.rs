//! The caching rules by clause. A test's name is the rule; the module is the part of the RFC.

mod age;
mod authorization;
mod cache_status;
mod conditional;
mod connection_fields;
mod directives;
mod encoding;
mod explicit_lifetime;
mod heuristic_lifetime;
mod interim;
mod invalidation;
mod keys;
mod message;
mod multipart;
mod oracle;
mod parsing;
mod partial_content;
mod proxy_status;
mod ranges;
mod request_directives;
mod serving_stale;
mod status_codes;
mod support;
mod targeted;
mod validation;
mod vary;
