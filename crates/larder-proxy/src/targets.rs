//! What requests can be for: sites and their origins, mirrors, registries, build caches, intercepted hosts, and the
//! other nodes of the fleet that own a key.

pub(crate) mod asked;
pub(crate) mod authority;
pub(crate) mod build_caches;
pub(crate) mod dots;
pub(crate) mod git;
pub(crate) mod intercept;
pub(crate) mod links;
pub(crate) mod listings;
pub(crate) mod lists;
pub(crate) mod mirrors;
pub(crate) mod registries;
pub(crate) mod routes;
pub(crate) mod siblings;
