//! Whether a request asks to leave HTTP for something that is passed through (RFC 9110 7.8).

use http::{
    HeaderMap,
    header::{CONNECTION, UPGRADE},
};

use crate::list::tokens;

/// Whether these fields of a request of HTTP/1.1 ask for another protocol, none of them HTTP/2.
///
/// A connection of HTTP/2 to an origin would lead past every rule for requests, so whoever offers `h2c`, alone or among
/// others, is answered over HTTP/1.1.
pub fn asks_to_switch(fields: &HeaderMap) -> bool {
    fields.contains_key(UPGRADE)
        && tokens(fields, &CONNECTION).any(|option| option.eq_ignore_ascii_case(b"upgrade"))
        && !tokens(fields, &UPGRADE).any(|protocol| protocol.eq_ignore_ascii_case(b"h2c"))
}
