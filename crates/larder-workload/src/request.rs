//! One request of a trace.

/// One request of a trace, with the properties that a cache decides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Time of the request in milliseconds. The time 0 depends on the trace.
    pub time_ms: u64,
    /// The requested object: its number in the trace, or a hash of its name.
    pub key: u64,
    /// Length of the object in bytes.
    pub size_bytes: u64,
    /// Hash of the object's host; 0 if the trace has no hosts.
    pub site: u64,
    /// Hash of the client; 0 if the trace has no clients.
    pub client: u64,
}
