//! Checks the grammar of a chunk's extensions (RFC 9112 7.1.1).
//!
//! Some implementations mistake a malformed extension for the next line, and then find the end of the body at another
//! place. Attackers use the difference to smuggle a second request (RFC 9112 11.2).

/// Position of the parser in a chunk's extensions (RFC 9112 7.1.1): `*( BWS ";" BWS name [ BWS "=" BWS ( token /
/// quoted-string ) ] )`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ExtensionPart {
    /// Before an extension's name.
    NameStart,
    /// In an extension's name.
    Name,
    /// In white space after an extension's name.
    NameEnd,
    /// Before an extension's value.
    ValueStart,
    /// In an unquoted value.
    Token,
    /// In a quoted value.
    Quoted,
    /// After a backslash in a quoted value.
    Escaped,
    /// After the closing quote of a value.
    Unquoted,
    /// In white space after an extension's value.
    ValueEnd,
}

impl ExtensionPart {
    /// Returns whether the grammar permits the end of the line at this position.
    pub(crate) fn may_end(self) -> bool {
        matches!(self, Self::Name | Self::Token | Self::Unquoted)
    }

    /// Returns the position after `octet`, or `None` if the grammar does not permit `octet` here.
    pub(crate) fn step(self, octet: u8) -> Option<Self> {
        Some(match (self, octet) {
            (Self::NameStart | Self::ValueStart, b' ' | b'\t') => self,
            (Self::Name | Self::NameEnd, b' ' | b'\t') => Self::NameEnd,
            (Self::Token | Self::Unquoted | Self::ValueEnd, b' ' | b'\t') => Self::ValueEnd,
            (Self::NameStart | Self::Name, _) if is_token_octet(octet) => Self::Name,
            (Self::ValueStart | Self::Token, _) if is_token_octet(octet) => Self::Token,
            (Self::Name | Self::NameEnd | Self::Token | Self::Unquoted | Self::ValueEnd, b';') => Self::NameStart,
            (Self::Name | Self::NameEnd, b'=') => Self::ValueStart,
            (Self::ValueStart, b'"') => Self::Quoted,
            (Self::Quoted, b'"') => Self::Unquoted,
            (Self::Quoted, b'\\') => Self::Escaped,
            (Self::Quoted | Self::Escaped, b'\t' | b' '..=b'~' | 0x80..) => Self::Quoted,
            _ => return None,
        })
    }
}

/// Returns whether an octet is allowed in a token (RFC 9110 5.6.2).
fn is_token_octet(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&octet)
}
