//! The files of the local CA: their paths, and the protection of its key.
//!
//! Owns: their names and permissions. The content is in `larder_proxy::Authority`. Invariants: the key is written to a
//! file that only its owner can read, in such a directory, and is never printed. A key that other users can read is not
//! used.

use crate::{ground::failure::Failure, settings::RunSettings};
use etcetera::BaseStrategy;
use larder_proxy::{Authority, Intercept, TlsIdentity};
use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

/// The directory with the files of a CA.
pub(crate) struct AuthorityFiles {
    directory: PathBuf,
}

impl AuthorityFiles {
    /// Returns the files in `directory`, or in the default place: `larder/ca` in the user's data directory.
    ///
    /// # Errors
    /// The user has no data directory.
    pub(crate) fn at(directory: Option<PathBuf>) -> Result<Self, Failure> {
        if let Some(directory) = directory {
            return Ok(Self { directory });
        }
        Ok(Self { directory: user_data_folder()?.join("ca") })
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.directory.join("ca.pem")
    }

    fn key(&self) -> PathBuf {
        self.directory.join("ca.key")
    }

    pub(crate) fn exist(&self) -> bool {
        self.certificate().exists() || self.key().exists()
    }

    /// Reads the CA's certificate, which is not secret.
    ///
    /// # Errors
    /// There is no readable certificate. The failure tells how to create a CA.
    pub(crate) fn certificate_pem(&self) -> Result<String, Failure> {
        let path = self.certificate();
        fs::read_to_string(&path).map_err(|error| self.unreadable(&path, &error))
    }

    /// Reads the CA with its key.
    ///
    /// # Errors
    /// The CA does not exist, other users may read its key, Larder did not create it, or it has expired.
    pub(crate) fn load(&self) -> Result<Authority, Failure> {
        let certificate = self.certificate_pem()?;
        let path = self.key();
        self.check_key()?;
        let key = fs::read_to_string(&path).map_err(|error| self.unreadable(&path, &error))?;
        let authority = Authority::from_pem(&certificate, &key).map_err(|error| {
            let help = format!("replace it with larder ca rotate{}", self.said());
            Failure::runtime(format!("the CA cannot be used: {error}: {}", self.directory.display()), help)
        })?;
        if authority.expires_at() <= SystemTime::now() {
            let help = format!("replace it with larder ca rotate{}, and make clients trust the new one", self.said());
            return Err(Failure::runtime(format!("the CA has expired: {}", self.certificate().display()), help));
        }
        Ok(authority)
    }

    /// Writes a CA, in place of any existing one.
    ///
    /// # Errors
    /// A file cannot be written; the failure names it.
    pub(crate) fn save(&self, authority: &Authority) -> Result<(), Failure> {
        let failed = |what: &Path, error: &io::Error| {
            let help = "choose a directory that you may write to with --dir";
            Failure::runtime(format!("cannot write the CA: {error}: {}", what.display()), help)
        };
        let directory = &self.directory;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|error| failed(directory, &error))?;
        let data = fs::metadata(directory).map_err(|error| failed(directory, &error))?;
        if data.mode() & OTHERS != 0 {
            let help = format!("chmod 700 {0}, or give another directory with --dir", directory.display());
            return Err(Failure::runtime(
                format!("other users may read the CA's directory: {}", directory.display()),
                help,
            ));
        }
        // The key is written first, because a certificate without its key is reported as unusable.
        for (path, text, mode) in [
            (self.key(), authority.key_pem(), 0o600),
            (self.certificate(), authority.certificate_pem().to_owned(), 0o644),
        ] {
            replace(&path, &text, mode).map_err(|error| failed(&path, &error))?;
        }
        Ok(())
    }

    /// Refuses a key that other users may read.
    fn check_key(&self) -> Result<(), Failure> {
        let path = self.key();
        let data = fs::metadata(&path).map_err(|error| self.unreadable(&path, &error))?;
        let shown = path.display();
        if data.mode() & OTHERS != 0 {
            let help = format!(
                "chmod 600 {shown}; if another user may have read it, replace the CA with larder ca rotate{}",
                self.said()
            );
            return Err(Failure::runtime(format!("other users may read the CA's key: {shown}"), help));
        }
        let user = rustix::process::geteuid();
        if data.uid() != user.as_raw() && !user.is_root() {
            let help = "use a CA of your own, created with larder ca init --dir DIRECTORY";
            return Err(Failure::runtime(format!("the CA's key belongs to another user: {shown}"), help));
        }
        Ok(())
    }

    /// Returns the failure of a command that needs a CA when there is none.
    pub(crate) fn missing(&self) -> Failure {
        self.unreadable(&self.certificate(), &rustix::io::Errno::NOENT.into())
    }

    fn unreadable(&self, path: &Path, error: &io::Error) -> Failure {
        let help = match error.kind() {
            io::ErrorKind::NotFound => format!("create one with larder ca init{}", self.said()),
            _ => "name the directory of a CA that you may read with --dir".to_owned(),
        };
        Failure::runtime(format!("there is no CA: {error}: {}", path.display()), help)
    }

    /// Returns the flag that names this directory, or an empty text for the default one.
    fn said(&self) -> String {
        let usual = Self::at(None).ok().map(|usual| usual.directory);
        if usual.as_ref() == Some(&self.directory) {
            String::new()
        } else {
            format!(" --dir {}", self.directory.display())
        }
    }
}

/// Returns Larder's directory in the user's data directory. It may not exist yet.
///
/// # Errors
/// The user has no data directory.
pub(crate) fn user_data_folder() -> Result<PathBuf, Failure> {
    let strategy = etcetera::choose_base_strategy().map_err(|error| {
        let help = "set HOME or XDG_DATA_HOME, or name the CA's directory with --dir DIRECTORY";
        Failure::runtime(format!("cannot find your data directory: {error}"), help)
    })?;
    Ok(strategy.data_dir().join("larder"))
}

/// Sets the paths of the CA's files in the settings of an intercepting proxy.
///
/// # Errors
/// There is no usable CA.
pub(crate) fn settle(settings: &mut RunSettings) -> Result<(), Failure> {
    if !settings.intercepts() {
        return Ok(());
    }
    let files = AuthorityFiles::at(settings.intercept.authority.clone())?;
    files.load()?;
    let authority = TlsIdentity { certificate: files.certificate(), key: files.key() };
    settings.proxy.intercept = Some(Intercept { hosts: settings.intercept.hosts.clone(), authority });
    Ok(())
}

/// Writes a new file next to an existing one, then replaces the existing one by it.
fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let fresh = path.with_extension("new");
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&fresh, path)
}

/// Permission bits of the file's group and of all other users.
const OTHERS: u32 = 0o077;
