//! One request of a trace.

/// The properties of a request that a cache's decisions depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The time in milliseconds, from a start that depends on the trace.
    pub time_ms: u64,
    /// The object: the trace's own number, or a hash of the object's name.
    pub key: u64,
    /// The length in bytes.
    pub size_bytes: u64,
    /// The site: a hash of the host, or 0 if the trace has none.
    pub site: u64,
    /// A hash of the client, or 0 if the trace has none.
    pub client: u64,
}
