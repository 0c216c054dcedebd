//! The address of a shared log with its credentials, and an entry of its stream, for any kind of server.

use std::path::Path;

use crate::ground::{config::SharedLog, digest::short_digest, tokens::read_own};

/// The address of the shared log and the credentials for it, under one configuration.
pub(crate) struct SharedLogLink {
    pub(crate) log: SharedLog,
    pub(crate) credentials: Option<LogCredentials>,
}

/// The user and password, or the token, for the server that keeps the log.
#[derive(Clone)]
pub(crate) struct LogCredentials {
    pub(super) user: Option<String>,
    pub(super) password: String,
}

/// An entry of the stream: its number and content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StreamEntry {
    pub(super) number: u64,
    pub(super) octets: EntryOctets,
}

/// The content of an entry of the stream, classified by whether a Larder node may have written it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EntryOctets {
    /// Content that a Larder node may have written.
    Present(Vec<u8>),
    /// The entry was removed from the stream.
    Removed,
    /// The entry is too long, or has a form that no Larder node writes.
    Foreign,
}

impl EntryOctets {
    /// Classifies the content of an entry that exists.
    pub(super) fn new(octets: Vec<u8>) -> Self {
        if octets.len() > ENTRY_BYTES_MAX { Self::Foreign } else { Self::Present(octets) }
    }
}

impl LogCredentials {
    /// Reads credentials from a file that only its owner may read: a password or token, or `USER:PASSWORD`.
    ///
    /// # Errors
    /// The file cannot be used; the error says why.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let text = read_own(path).map_err(|error| format!("credentials for the fleet's log {name}: {error}"))?;
        let text = text.trim();
        let (user, password) = text.split_once(':').map_or((None, text), |(user, password)| (Some(user), password));
        if password.is_empty() || text.chars().any(char::is_control) {
            return Err(format!("credentials for the fleet's log {name}: it has no PASSWORD, and no USER:PASSWORD"));
        }
        Ok(Self { user: user.map(str::to_owned), password: password.to_owned() })
    }
}

impl StreamEntry {
    /// Returns a digest of the content, by which the entry is recognized later.
    pub(super) fn mark(&self) -> u64 {
        match &self.octets {
            EntryOctets::Present(octets) => short_digest(octets),
            EntryOctets::Removed | EntryOctets::Foreign => short_digest(&[]),
        }
    }
}

/// Returns a text from another program in a form that is safe to show: short and without control characters.
pub(super) fn shown(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(SHOWN_CHARS).collect()
}

/// Maximum length of an entry, in bytes. NATS accepts 1 MiB by default.
pub(super) const ENTRY_BYTES_MAX: usize = 512 << 10;
const SHOWN_CHARS: usize = 120;
