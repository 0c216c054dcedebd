//! The users of the forward proxy, with passwords from a file in the format of `htpasswd` (RFC 7617).
//!
//! Owns: the users, and recently verified credentials. Where passwords are required is decided elsewhere. Invariants:
//! passwords are kept as in the file, hashed with a deliberately slow hash. Verified credentials are remembered for
//! [`KNOWN_FOR`] by a keyed hash. A slow hash is never computed on a worker's thread, and at most [`AT_ONCE`] at a
//! time.

use larder_device::IgnorePoison;
use std::{
    collections::{HashMap, hash_map::RandomState},
    fs,
    hash::BuildHasher as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, header::PROXY_AUTHORIZATION};
use sha_crypt::{PasswordVerifier as _, ShaCrypt};
use tokio::sync::Semaphore;

/// The users of the forward proxy and the hashes of their passwords, from a file.
pub(crate) struct PasswordList {
    path: PathBuf,
    file: Mutex<Arc<PasswordFile>>,
    known: Mutex<HashMap<String, KnownUser>>,
    hasher: RandomState,
    turns: Semaphore,
}

/// The users and password hashes in the file, and the file's modification time.
struct PasswordFile {
    modified: Option<SystemTime>,
    hashes: HashMap<String, String>,
}

/// Credentials that were verified recently.
struct KnownUser {
    credentials: u64,
    until: Instant,
}

impl PasswordList {
    /// Reads the file.
    ///
    /// # Errors
    /// The file cannot be read, or a line is not a user and a hash of an accepted kind. The error says which.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        Ok(Self {
            path: path.to_owned(),
            file: Mutex::new(Arc::new(PasswordFile::read(path)?)),
            known: Mutex::default(),
            hasher: RandomState::new(),
            turns: Semaphore::new(AT_ONCE),
        })
    }

    /// Returns whether a request's credentials were verified within [`KNOWN_FOR`].
    pub(crate) fn knows(&self, fields: &HeaderMap) -> bool {
        let Some((user, _, credentials)) = self.credentials(fields) else { return false };
        let known = self.known.lock().ignore_poison();
        known.get(&user).is_some_and(|known| known.credentials == credentials && Instant::now() < known.until)
    }

    /// Returns whether a request's credentials are right. May wait for a slow hash.
    pub(crate) async fn admit(self: &Arc<Self>, fields: &HeaderMap) -> bool {
        if self.knows(fields) {
            return true;
        }
        let Some((user, password, credentials)) = self.credentials(fields) else { return false };
        let Ok(_turn) = self.turns.acquire().await else { return false };
        let this = Arc::clone(self);
        let name = user.clone();
        let checking = tokio::task::spawn_blocking(move || this.current().is_right(&name, &password));
        let right = checking.await.unwrap_or(false);
        if right {
            let mut known = self.known.lock().ignore_poison();
            known.insert(user, KnownUser { credentials, until: Instant::now() + KNOWN_FOR });
        }
        right
    }

    /// Returns the user that a request names, verified or not.
    pub(crate) fn user(&self, fields: &HeaderMap) -> Option<String> {
        self.credentials(fields).map(|(user, ..)| user)
    }

    /// Returns the user, the password, and a keyed hash of both.
    fn credentials(&self, fields: &HeaderMap) -> Option<(String, Vec<u8>, u64)> {
        let value = fields.get(PROXY_AUTHORIZATION)?.as_bytes();
        let (scheme, encoded) = value.split_at_checked(b"basic ".len())?;
        if !scheme.eq_ignore_ascii_case(b"basic ") || encoded.len() > CREDENTIALS_BYTES_MAX {
            return None;
        }
        let decoded = BASE64_STANDARD.decode(encoded.trim_ascii()).ok()?;
        let colon = decoded.iter().position(|byte| *byte == b':')?;
        let user = String::from_utf8(decoded[..colon].to_vec()).ok()?;
        Some((user, decoded[colon + 1..].to_vec(), self.hasher.hash_one(&decoded)))
    }

    /// Returns the users and hashes of the file, reading it again if it has changed. If the changed file is invalid,
    /// its previous content stays in use.
    fn current(&self) -> Arc<PasswordFile> {
        let mut file = self.file.lock().ignore_poison();
        if modified(&self.path) != file.modified {
            match PasswordFile::read(&self.path) {
                Ok(newer) => *file = Arc::new(newer),
                Err(why) => {
                    tracing::warn!(why, "cannot use the changed password file: the previous passwords remain valid")
                }
            }
        }
        Arc::clone(&file)
    }
}

impl PasswordFile {
    fn read(path: &Path) -> Result<Self, String> {
        let say = |what: String| format!("cannot read passwords: {what}: {}", path.display());
        let modified = modified(path);
        let text = fs::read_to_string(path).map_err(|error| say(error.to_string()))?;
        let mut hashes = HashMap::new();
        let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
        for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let (user, hash) =
                line.split_once(':').ok_or_else(|| say(format!("line {number} has no user and hash")))?;
            if !KINDS.iter().any(|kind| hash.starts_with(kind)) {
                return Err(say(format!("line {number} has neither a bcrypt nor a SHA-crypt hash (see htpasswd -B)")));
            }
            hashes.insert(user.to_owned(), hash.to_owned());
        }
        Ok(Self { modified, hashes })
    }

    /// Returns whether `password` is the user's. The check takes as long for an unknown user, so that its duration does
    /// not show which users exist.
    fn is_right(&self, user: &str, password: &[u8]) -> bool {
        let Some(hash) = self.hashes.get(user) else {
            // Verifies a password against any user's hash, only to take as long as for a known user.
            let _ = self.hashes.values().next().map(|hash| verify(password, hash));
            return false;
        };
        verify(password, hash)
    }
}

fn verify(password: &[u8], hash: &str) -> bool {
    if hash.starts_with("$2") {
        return bcrypt::verify(password, hash).unwrap_or(false);
    }
    ShaCrypt::default().verify_password(password, hash).is_ok()
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|data| data.modified()).ok()
}

/// Prefixes of the accepted kinds of hashes (bcrypt, SHA-crypt), all deliberately slow.
const KINDS: [&str; 5] = ["$2a$", "$2b$", "$2y$", "$5$", "$6$"];
/// Time for which verified credentials are accepted without another check.
const KNOWN_FOR: Duration = Duration::from_secs(60);
/// Maximum number of slow hashes that are computed at the same time.
const AT_ONCE: usize = 2;
/// Maximum length of credentials, in bytes. Longer ones are rejected without a check.
const CREDENTIALS_BYTES_MAX: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(credentials: &str) -> HeaderMap {
        let value = format!("Basic {}", BASE64_STANDARD.encode(credentials)).parse().unwrap();
        [(PROXY_AUTHORIZATION, value)].into_iter().collect()
    }

    #[tokio::test]
    async fn both_kinds_of_hashes_are_checked_and_what_is_right_is_remembered() {
        let file = tempfile::NamedTempFile::new().unwrap();
        // `ann` has a bcrypt hash, `bob` a SHA-512 crypt hash (the example in its specification).
        let ann = bcrypt::hash("secret", 4).unwrap();
        let bob =
            "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1";
        fs::write(file.path(), format!("# users\nann:{ann}\nbob:{bob}\n")).unwrap();
        let passwords = Arc::new(PasswordList::load(file.path()).unwrap());
        assert!(passwords.admit(&fields("ann:secret")).await);
        assert!(passwords.admit(&fields("bob:Hello world!")).await);
        assert!(passwords.knows(&fields("ann:secret")) && !passwords.knows(&fields("ann:other")));
        for wrong in ["ann:Secret", "bob:secret", "eve:secret", "ann", ""] {
            assert!(!passwords.admit(&fields(wrong)).await, "{wrong}");
        }
        assert!(!passwords.admit(&HeaderMap::new()).await);
    }

    #[test]
    fn file_with_weak_hashes_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (text, told) in
            [("ann:$apr1$x$y", "line 1 has neither"), ("\nann", "line 2"), ("ann:{SHA}x", "line 1 has neither")]
        {
            fs::write(file.path(), text).unwrap();
            let why = PasswordList::load(file.path()).err().unwrap();
            assert!(why.contains(told), "{why}");
        }
        assert!(PasswordList::load(&file.path().join("none")).is_err());
    }
}
