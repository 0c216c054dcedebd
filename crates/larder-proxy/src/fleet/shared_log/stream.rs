//! The address of a shared log with its credentials, and an entry of its stream, whatever program keeps it.

use std::path::Path;

use crate::{config::SharedLog, digest::short_digest, tokens::read_own};

/// The shared log under one configuration.
pub(crate) struct SharedLogLink {
    pub(crate) log: SharedLog,
    pub(crate) credentials: Option<LogCredentials>,
}

/// The credentials for the program that keeps the log.
#[derive(Clone)]
pub(crate) struct LogCredentials {
    pub(super) user: Option<String>,
    pub(super) password: String,
}

/// An entry of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StreamEntry {
    pub(super) number: u64,
    pub(super) octets: EntryOctets,
}

/// The content of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EntryOctets {
    /// The content, which a Larder may have written.
    Present(Vec<u8>),
    /// The entry was removed.
    Removed,
    /// The entry is longer, or has another form, than any that a Larder writes.
    Foreign,
}

impl EntryOctets {
    /// Returns the content of an entry that is there.
    pub(super) fn new(octets: Vec<u8>) -> Self {
        if octets.len() > ENTRY_BYTES_MAX { Self::Foreign } else { Self::Present(octets) }
    }
}

impl LogCredentials {
    /// Reads credentials from a file that only its owner may read: a password or token, or `USER:PASSWORD`.
    ///
    /// # Errors
    /// The file is unusable, with the reason.
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
    /// Returns a number by which the entry is recognized later.
    pub(super) fn mark(&self) -> u64 {
        match &self.octets {
            EntryOctets::Present(octets) => short_digest(octets),
            EntryOctets::Removed | EntryOctets::Foreign => short_digest(&[]),
        }
    }
}

/// Returns what another program said, in a form that is safe to show.
pub(super) fn shown(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(SHOWN_CHARS).collect()
}

/// Longest entry. NATS takes 1 MiB by default.
pub(super) const ENTRY_BYTES_MAX: usize = 512 << 10;
const SHOWN_CHARS: usize = 120;
