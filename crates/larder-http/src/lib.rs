//! HTTP caching rules.
