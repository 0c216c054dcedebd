//! The proxy.
