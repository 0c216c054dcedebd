//! The messages of a store's socket, as docs/reference/store-socket.md describes them.
//!
//! Owns: the layout of requests and responses, and their limits. Nothing is executed here. Invariant: every field of a
//! request is checked before it is used, and a message never takes more memory than its limit.

use larder_cache::Error as CacheError;
use larder_store::ErrorKind;

/// The beginning of each side's first message.
pub(super) const MAGIC: [u8; 6] = *b"LARDER";
/// The version of the protocol. A server refuses other versions.
pub(super) const VERSION: u16 = 1;
/// Length of each side's first message, in bytes: the magic and the version.
pub(super) const HELLO_BYTES: usize = MAGIC.len() + 2;
/// Maximum length of a key, in bytes.
pub(super) const KEY_BYTES_MAX: usize = 4096;
/// Maximum number of bytes of a value in one message.
pub(super) const DATA_BYTES_MAX: usize = 1 << 20;
/// Maximum length of a request in bytes, without its length field. The longest request is a write.
pub(super) const REQUEST_BYTES_MAX: usize = WRITE_FRONT_BYTES + DATA_BYTES_MAX;
/// Length of the part of a write that precedes the bytes of the value, in bytes: the operation and the handle.
pub(super) const WRITE_FRONT_BYTES: usize = 1 + HANDLE_BYTES;
/// Maximum length of a request other than a write, in bytes. The longest one opens a value with the longest key.
pub(super) const SHORT_REQUEST_BYTES_MAX: usize = 1 + size_of::<u64>() + KEY_BYTES_MAX;
/// Length of the field with a message's length, in bytes.
pub(super) const LENGTH_BYTES: usize = 4;

const HANDLE_BYTES: usize = 4;
/// The declared length in a request to write a value whose length the client does not know yet.
const LENGTH_UNKNOWN: u64 = u64::MAX;

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request<'a> {
    OpenToRead { key: &'a [u8] },
    OpenToWrite { key: &'a [u8], len_bytes: Option<u64> },
    Read { handle: u32, offset: u64, count: u32 },
    Write { handle: u32, bytes: &'a [u8] },
    Close { handle: u32 },
    Abandon { handle: u32 },
    Remove { key: &'a [u8] },
    Sync,
}

/// The outcome of a request: the first byte of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Status {
    Done = 0,
    /// No value is stored under the key.
    NotFound = 1,
    /// The request is malformed.
    Invalid = 2,
    /// The connection has no such handle, or the handle is for another use.
    BadHandle = 3,
    /// There are too many connections, handles or unfinished values.
    TooMany = 4,
    /// The value is longer than the store permits.
    TooLong = 5,
    /// The value does not have the length that was declared.
    WrongLength = 6,
    /// A part of the open value was evicted or is damaged.
    Gone = 7,
    /// The store has no room for the value now.
    Full = 8,
    /// The store or its device failed.
    Failed = 9,
    /// The server is stopping.
    Stopping = 10,
}

/// Why a request is refused.
#[derive(Debug)]
pub(super) struct RequestRefusal {
    pub(super) status: Status,
    /// A description of the problem, for people.
    pub(super) text: String,
}

impl RequestRefusal {
    pub(super) fn new(status: Status, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }
}

impl From<CacheError> for RequestRefusal {
    fn from(error: CacheError) -> Self {
        let status = match &error {
            CacheError::Gone => Status::Gone,
            CacheError::Invalid(_) => Status::Invalid,
            CacheError::Store(error) => match error.kind() {
                ErrorKind::Full => Status::Full,
                ErrorKind::Invalid => Status::Invalid,
                ErrorKind::Closed => Status::Stopping,
                _ => Status::Failed,
            },
            _ => Status::Failed,
        };
        Self::new(status, error.to_string())
    }
}

impl<'a> Request<'a> {
    /// Parses a request, without its length field.
    ///
    /// # Errors
    /// The operation is unknown, or its fields are malformed.
    pub(super) fn parse(message: &'a [u8]) -> Result<Self, RequestRefusal> {
        let Some((&operation, fields)) = message.split_first() else { return Err(invalid("an empty request")) };
        match operation {
            1 => Ok(Self::OpenToRead { key: checked_key(fields)? }),
            2 => {
                let (length, key) = fields.split_first_chunk().ok_or_else(short)?;
                let len_bytes = Some(u64::from_le_bytes(*length)).filter(|length| *length != LENGTH_UNKNOWN);
                Ok(Self::OpenToWrite { key: checked_key(key)?, len_bytes })
            }
            3 => {
                let (handle, fields) = split_handle(fields)?;
                let (offset, count) = fields.split_first_chunk().ok_or_else(short)?;
                let count =
                    <[u8; 4]>::try_from(count).map_err(|_| invalid("a read has a handle, an offset and a count"))?;
                Ok(Self::Read { handle, offset: u64::from_le_bytes(*offset), count: u32::from_le_bytes(count) })
            }
            4 => {
                let (handle, bytes) = split_handle(fields)?;
                Ok(Self::Write { handle, bytes })
            }
            5 => Ok(Self::Close { handle: only_handle(fields)? }),
            6 => Ok(Self::Abandon { handle: only_handle(fields)? }),
            7 => Ok(Self::Remove { key: checked_key(fields)? }),
            8 if fields.is_empty() => Ok(Self::Sync),
            8 => Err(invalid("a sync has no fields")),
            _ => Err(invalid(format!("unknown operation: {operation}"))),
        }
    }
}

fn invalid(text: impl Into<String>) -> RequestRefusal {
    RequestRefusal::new(Status::Invalid, text)
}

/// Returns the refusal of a request that is longer than [`SHORT_REQUEST_BYTES_MAX`] and not a write.
pub(super) fn too_long_request(length: usize) -> RequestRefusal {
    let text = format!("only a write has more than {SHORT_REQUEST_BYTES_MAX} bytes; a key has 1 to {KEY_BYTES_MAX}");
    invalid(format!("a request of {length} bytes: {text}"))
}

fn short() -> RequestRefusal {
    invalid("the request is too short for its operation")
}

fn checked_key(key: &[u8]) -> Result<&[u8], RequestRefusal> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(invalid(format!("a key has 1 to {KEY_BYTES_MAX} bytes, not {}", key.len())));
    }
    Ok(key)
}

fn split_handle(fields: &[u8]) -> Result<(u32, &[u8]), RequestRefusal> {
    let (handle, rest) = fields.split_first_chunk::<HANDLE_BYTES>().ok_or_else(short)?;
    Ok((u32::from_le_bytes(*handle), rest))
}

fn only_handle(fields: &[u8]) -> Result<u32, RequestRefusal> {
    match split_handle(fields)? {
        (handle, []) => Ok(handle),
        _ => Err(invalid("the request has bytes after its handle")),
    }
}

/// Returns the first message of the server.
pub(super) fn hello() -> [u8; HELLO_BYTES] {
    let mut hello = [0; HELLO_BYTES];
    hello[..MAGIC.len()].copy_from_slice(&MAGIC);
    hello[MAGIC.len()..].copy_from_slice(&VERSION.to_le_bytes());
    hello
}

/// Returns the version in a client's first message. `None` if the client uses another protocol.
pub(super) fn version_of(hello: &[u8; HELLO_BYTES]) -> Option<u16> {
    let version = hello.strip_prefix(&MAGIC)?;
    version.try_into().ok().map(u16::from_le_bytes)
}

/// Returns the front of a response with `body_bytes` of content: its length and the status.
pub(super) fn response_front(status: Status, body_bytes: usize) -> [u8; LENGTH_BYTES + 1] {
    assert!(body_bytes <= DATA_BYTES_MAX, "a response of {body_bytes} bytes");
    let [a, b, c, d] = (body_bytes as u32 + 1).to_le_bytes();
    [a, b, c, d, status as u8]
}

/// Returns the response that refuses a request.
pub(super) fn refusal_response(refusal: &RequestRefusal) -> Vec<u8> {
    let text = refusal.text.as_bytes();
    let text = &text[..text.len().min(TEXT_BYTES_MAX)];
    [&response_front(refusal.status, text.len())[..], text].concat()
}

/// Maximum length of a problem's description, in bytes.
const TEXT_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn request(operation: u8, fields: &[&[u8]]) -> Vec<u8> {
        [&[operation], fields.concat().as_slice()].concat()
    }

    #[test]
    fn requests_are_parsed_field_by_field() {
        let handle = 7_u32.to_le_bytes();
        let read = request(3, &[&handle, &9_u64.to_le_bytes(), &5_u32.to_le_bytes()]);
        assert_eq!(Request::parse(&read).unwrap(), Request::Read { handle: 7, offset: 9, count: 5 });
        let open = request(2, &[&u64::MAX.to_le_bytes(), b"key"]);
        assert_eq!(Request::parse(&open).unwrap(), Request::OpenToWrite { key: b"key", len_bytes: None });
        let open = request(2, &[&3_u64.to_le_bytes(), b"key"]);
        assert_eq!(Request::parse(&open).unwrap(), Request::OpenToWrite { key: b"key", len_bytes: Some(3) });
        let write = request(4, &[&handle, b"abc"]);
        assert_eq!(Request::parse(&write).unwrap(), Request::Write { handle: 7, bytes: b"abc" });
    }

    #[test]
    fn keys_and_fields_of_a_wrong_length_are_refused() {
        let longest = vec![b'k'; KEY_BYTES_MAX];
        assert!(Request::parse(&request(1, &[&longest])).is_ok());
        for wrong in [
            request(1, &[]),
            request(1, &[&longest, b"k"]),
            request(2, &[&[0; 7]]),
            request(3, &[&[0; 15]]),
            request(3, &[&[0; 17]]),
            request(4, &[&[0; 3]]),
            request(5, &[&[0; 5]]),
            request(8, &[b"x"]),
            request(0, &[]),
            request(9, &[]),
            Vec::new(),
        ] {
            assert_eq!(Request::parse(&wrong).unwrap_err().status, Status::Invalid, "{wrong:?}");
        }
    }

    #[test]
    fn a_long_text_is_cut() {
        let response = refusal_response(&RequestRefusal::new(Status::Failed, "é".repeat(4000)));
        assert_eq!(response.len(), LENGTH_BYTES + 1 + TEXT_BYTES_MAX);
        assert_eq!(u32::from_le_bytes(*response.first_chunk().unwrap()) as usize, response.len() - LENGTH_BYTES);
    }

    #[test]
    fn the_first_message_is_recognized() {
        assert_eq!(version_of(&hello()), Some(VERSION));
        assert_eq!(version_of(b"GET / HT"), None);
    }

    #[test]
    fn no_bytes_break_the_parser() {
        let mut random = larder_store::SplitMix64::new(1);
        for _ in 0..20_000 {
            let count = random.next_u64() as usize % 40;
            let mut bytes: Vec<u8> = (0..count).map(|_| random.next_u64() as u8).collect();
            if let Some(operation) = bytes.first_mut() {
                *operation %= 10;
            }
            match Request::parse(&bytes) {
                Ok(Request::OpenToRead { key } | Request::Remove { key }) => assert_eq!(key, &bytes[1..]),
                Ok(Request::Write { bytes: data, .. }) => assert_eq!(data, &bytes[5..]),
                Ok(_) => assert!(bytes.len() > 4 || bytes == [8], "{bytes:?}"),
                Err(refusal) => assert_eq!(refusal.status, Status::Invalid, "{bytes:?}"),
            }
        }
    }
}
