//! One request of a trace.

/// A request as far as a cache's decisions need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When, in milliseconds from whatever the trace counts from.
    pub time_ms: u64,
    /// The object: the trace's own number, or a hash of its name.
    pub key: u64,
    /// The length in bytes.
    pub size_bytes: u64,
    /// From which site: a hash of the host, or 0 if the trace does not say.
    pub site: u64,
    /// A hash of the client, or 0 if the trace has none.
    pub client: u64,
}
