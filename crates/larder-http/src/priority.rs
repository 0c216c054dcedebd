//! The order in which a client wants its responses (RFC 9218 4).

use http::{HeaderMap, HeaderName};
use sfv::{BareItem, Dictionary, ListEntry, Parser};

/// Returns how urgent the response to a request with these fields is, from 0 to 7. 0 is the most urgent.
///
/// ```
/// use http::HeaderMap;
/// use larder_http::priority::urgency;
///
/// let mut fields = HeaderMap::new();
/// assert_eq!(urgency(&fields), 3);
/// fields.insert("priority", "u=1, i".parse()?);
/// assert_eq!(urgency(&fields), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn urgency(fields: &HeaderMap) -> u8 {
    let mut lines = fields.get_all(FIELD).iter().map(|line| line.as_bytes()).peekable();
    if lines.peek().is_none() {
        return URGENCY_DEFAULT;
    }
    let lines: Vec<&[u8]> = lines.collect();
    let dictionary: Dictionary = Parser::new(&lines.join(&b", "[..])).parse().unwrap_or_default();
    let Some(ListEntry::Item(item)) = dictionary.get("u") else { return URGENCY_DEFAULT };
    let BareItem::Integer(urgency) = item.bare_item else { return URGENCY_DEFAULT };
    u8::try_from(i64::from(urgency)).ok().filter(|urgency| *urgency <= URGENCY_MAX).unwrap_or(URGENCY_DEFAULT)
}

const FIELD: HeaderName = HeaderName::from_static("priority");
const URGENCY_DEFAULT: u8 = 3;
/// The urgency of the least urgent responses.
pub const URGENCY_MAX: u8 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgency_is_that_of_a_well_formed_field() {
        for (lines, expected) in [
            (&[][..], 3),
            (&["u=0"], 0),
            (&["i, u=7"], 7),
            (&["i", "u=5"], 5),
            (&["i"], 3),
            (&["u=8"], 3),
            (&["u=-1"], 3),
            (&["u=\"1\""], 3),
            (&["u=1, ;"], 3),
        ] {
            let fields = lines.iter().map(|line| (FIELD, line.parse().unwrap())).collect();
            assert_eq!(urgency(&fields), expected, "{lines:?}");
        }
    }
}
