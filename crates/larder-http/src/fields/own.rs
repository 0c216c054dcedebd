//! Removes the fields that carry facts between parts of Larder.
//!
//! A stored ruling, or the proof of another node, decides what is stored and for whom. A stranger can send a field of
//! the same name, so everything that arrives from outside loses all of them before a decision reads it.

use http::{HeaderMap, HeaderName};

/// Removes all fields that only Larder itself sets: those whose names begin with `larder-`.
///
/// Cost: one comparison per field, and an allocation only if there is such a field.
pub fn strip_own(fields: &mut HeaderMap) {
    let is_own = |name: &HeaderName| name.as_str().starts_with(PREFIX);
    if !fields.keys().any(is_own) {
        return;
    }
    let own: Vec<HeaderName> = fields.keys().filter(|name| is_own(name)).cloned().collect();
    for name in own {
        fields.remove(name);
    }
}

const PREFIX: &str = "larder-";
