//! The proxy end to end: real sockets on loopback, a scripted origin, a real store.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod ailing;
mod behind;
mod bodies;
mod bounds;
mod breaks;
mod caching;
mod chunks;
mod clauses;
mod compression;
mod continuations;
mod cookies;
mod expectations;
mod flights;
mod forward;
mod groups;
mod http2;
mod http2_origins;
mod intercept;
mod lists;
mod long_bodies;
mod mirrors;
mod neighbours;
mod network;
mod offline;
mod operation;
mod origins;
mod overview;
mod parents;
mod partial;
mod poisoning;
mod ranges;
mod reconfigurations;
mod redirects;
mod registries;
mod reloads;
mod rules;
mod secure;
mod sites;
mod smuggling;
mod support;
mod tls_clients;
mod upgrades;
mod validation;
mod vary_updates;
