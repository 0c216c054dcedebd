//! What a reader understood of a stream of octets, in a form in which two readers can be compared.

use http::HeaderMap;

/// Everything that a reader understood of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Transcript {
    /// The messages whose heads were accepted.
    pub(crate) messages: Vec<Message>,
    /// Why the reader refused what follows the messages.
    pub(crate) refusal: Option<String>,
}

/// A message whose head was accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    /// The method of a request, or the status of a response.
    pub(crate) subject: String,
    /// The target of a request. Responses have none.
    pub(crate) target: String,
    pub(crate) version: String,
    pub(crate) fields: Fields,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Fields,
    pub(crate) end: BodyEnd,
}

/// The end of a message's body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum BodyEnd {
    /// The body ended as its framing announced.
    Whole,
    /// The stream ended within the body.
    #[default]
    Cut,
    /// The body's framing was refused.
    Refused(String),
}

/// Names and values, sorted by name. The order of the values of one name is kept.
pub(crate) type Fields = Vec<(String, Vec<u8>)>;

/// Returns the fields of a map.
pub(crate) fn sorted(map: &HeaderMap) -> Fields {
    let mut fields: Fields =
        map.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect();
    fields.sort_by(|one, other| one.0.cmp(&other.0));
    fields
}

impl Transcript {
    /// Returns why the reader stopped reading: the refusal of a body, or of a head.
    pub(crate) fn fault(&self) -> Option<&str> {
        match self.messages.last().map(|message| &message.end) {
            Some(BodyEnd::Refused(why)) => Some(why),
            _ => self.refusal.as_deref(),
        }
    }
}
