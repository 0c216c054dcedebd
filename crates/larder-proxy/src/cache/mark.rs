//! What tells apart the keys that one name has.

/// What tells keys of one name apart where both the default origin and forward mode may answer for it: a client says
/// which name it means, so what the default origin says under it must not answer those who mean the name's own origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    None,
    DefaultOrigin,
}

impl Mark {
    /// The key of a resource with this mark. No URI has a space in it.
    pub(crate) fn on(self, mut key: Vec<u8>) -> Vec<u8> {
        if self == Self::DefaultOrigin {
            key.extend_from_slice(b" default");
        }
        key
    }
}
