//! The facts about a body by which parts of it are joined.

use std::sync::Arc;

use crate::object::Head;
use bytes::Bytes;
use http::HeaderValue;

use crate::http::body_budget::BodyBudget;

/// The facts about a body by which parts of it from different responses can be joined (RFC 9110 15.3.7.3).
#[derive(Clone)]
pub(super) struct BodyHead {
    /// The strong validator of the body. `None` if it has none, or if a response turns out to have another one.
    pub(super) validator: Option<HeaderValue>,
    /// Length of the whole body in bytes. `None` if it is not known.
    pub(super) len: Option<u64>,
    /// The budget that counts the bytes of bodies in memory.
    pub(super) budget: Arc<BodyBudget>,
}

impl Head for BodyHead {
    fn validator(&self) -> Option<&[u8]> {
        self.validator.as_ref().map(HeaderValue::as_bytes)
    }

    fn len(&self) -> Option<u64> {
        self.len
    }

    /// Returns whether missing bytes can be requested. Does not demand that the origin has announced ranges: not every
    /// origin that serves them does.
    fn is_divisible(&self) -> bool {
        self.validator.is_some() && self.len.is_some()
    }

    fn counted(&self, bytes: Bytes) -> Bytes {
        self.budget.count(bytes)
    }
}
