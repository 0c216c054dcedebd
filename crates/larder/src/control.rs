//! The control socket of a running Larder: how `larder exec` and `larder env` of the same user find it, and what they ask it.
//!
//! Owns: where it is, and the messages, a line of JSON each. Does not: proxy. Invariants: the socket is in a directory of its
//! owner's alone, and whoever is at the other end is checked to be that owner; a message has a bound.

pub(crate) mod server;

use crate::{failure::Failure, report, settings::Settings, store_path};
use serde::{Deserialize, Serialize};
use std::{
    env,
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Write},
    net::SocketAddr,
    os::unix::{
        fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    time::Duration,
};

/// What is asked of a running Larder.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// A session, which lasts as long as the connection.
    Open { hosts: Vec<String>, except: Vec<String>, offline: bool },
    /// The session's figures.
    Figures,
    /// What it serves on its own listeners.
    About,
    /// That it reads its configuration again.
    Reload,
    /// That a newer program goes on in its place.
    Upgrade { program: Option<PathBuf>, check: bool },
    /// What an operator's command has it do: what follows on the connection is HTTP, as on the admin listener.
    Operate,
}

/// What is answered.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Opened { proxy: SocketAddr, certificate: String },
    Figures(Figures),
    About(About),
    Operate,
    Reloaded { told: String },
    Upgraded { told: String },
    Refused { problem: String, help: String },
}

/// The figures of a session.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) requests: u64,
    pub(crate) from_cache: u64,
    pub(crate) bytes: u64,
    pub(crate) saved_bytes: u64,
    /// Tunnels that went past the cache though their hosts are listed for interception.
    #[serde(default)]
    pub(crate) bypassed_count: u64,
    /// Targets of these tunnels, with the reasons.
    #[serde(default)]
    pub(crate) bypassed: Vec<(String, String)>,
    /// Requests that got no response because no origin may be asked.
    #[serde(default)]
    pub(crate) missing_count: u64,
    /// URLs of these requests.
    #[serde(default)]
    pub(crate) missing: Vec<String>,
}

/// What a Larder serves on its own listeners.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct About {
    /// Where clients connect, as to an HTTP proxy; `None` if this is no forward proxy.
    pub(crate) proxy: Option<SocketAddr>,
    /// Where clients connect without TLS, whatever is served there.
    #[serde(default)]
    pub(crate) listener: Option<SocketAddr>,
    /// The certificate that clients of intercepted hosts have to trust, in PEM.
    pub(crate) certificate: Option<String>,
    /// The proxy through which it asks origins.
    #[serde(default)]
    pub(crate) parent: Option<String>,
}

impl About {
    /// Returns it of a proxy by these settings that listens at these addresses.
    pub(crate) fn of(settings: &Settings, listeners: &[SocketAddr]) -> Self {
        let plain = settings.proxy.listeners.iter().zip(listeners).find(|(listener, _)| !listener.tls);
        let listener = plain.map(|(_, address)| report::reachable(*address));
        let proxy = listener.filter(|_| settings.forwards());
        let intercept = settings.proxy.intercept.as_ref();
        // It was read when the proxy took the settings.
        let certificate = intercept.and_then(|intercept| fs::read_to_string(&intercept.authority.certificate).ok());
        let parent = settings.proxy.parents.parent.as_ref().map(ToString::to_string);
        Self { proxy, listener, certificate, parent }
    }
}

/// Where the control socket is, and what lies beside it.
pub(crate) struct ControlPath {
    folder: PathBuf,
    /// Whether it is in the user's runtime directory, which is made for such things.
    is_for_runtime: bool,
}

impl ControlPath {
    /// Finds the place: the directory that a service manager made for this, the user's runtime directory, or else the directory of the
    /// default store.
    ///
    /// # Errors
    /// The user has neither.
    pub(crate) fn find() -> Result<Self, Failure> {
        // systemd.exec(5): one or more absolute paths with colons between.
        let service = env::var_os("RUNTIME_DIRECTORY").and_then(|paths| env::split_paths(&paths).next());
        if let Some(folder) = service.filter(|path| path.is_absolute() && path.is_dir()) {
            return Ok(Self { folder, is_for_runtime: true });
        }
        let runtime =
            env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute() && path.is_dir());
        let is_for_runtime = runtime.is_some();
        let folder = runtime.map_or_else(store_path::user_folder, |runtime| Ok(runtime.join("larder")))?;
        Ok(Self { folder, is_for_runtime })
    }

    /// Connects to a Larder that listens: this user's own, or the one that is a service of this machine, if this user may.
    pub(crate) fn connect_any() -> Option<Control> {
        let service = Self { folder: PathBuf::from(SERVICE_FOLDER), is_for_runtime: true };
        Self::find().ok().and_then(|path| path.connect()).or_else(|| service.connect())
    }

    /// Makes the directory, for its owner alone.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)
    }

    pub(crate) fn exists(&self) -> bool {
        self.folder.is_dir()
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("control.sock")
    }

    /// Where a Larder that serves a command alone tells what it has to tell.
    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join("exec.log")
    }

    /// Waits for its turn to make or remove the socket.
    pub(crate) fn lock(&self) -> io::Result<File> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(self.folder.join("control.lock"))?;
        file.lock()?;
        Ok(file)
    }

    /// Listens, in place of a socket that nobody listens on. Needs the lock.
    pub(crate) fn bind(&self) -> io::Result<UnixListener> {
        let path = self.socket();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    }

    /// Removes the socket of a Larder that ends.
    pub(crate) fn remove(&self) {
        // Nobody else makes one meanwhile. What cannot be removed is found to be dead.
        let lock = self.lock();
        let _ = fs::remove_file(self.socket());
        drop(lock);
    }

    /// Connects to the Larder that listens, if one does.
    pub(crate) fn connect(&self) -> Option<Control> {
        let stream = UnixStream::connect(self.socket()).ok()?;
        // It waits for its store; a proxy that answers nothing at all is none.
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.set_write_timeout(Some(PATIENCE)).ok()?;
        Some(Control { stream: BufReader::new(stream) })
    }
}

/// A connection to a running Larder.
pub(crate) struct Control {
    stream: BufReader<UnixStream>,
}

impl Control {
    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// The other end is gone, or what it says is no answer.
    pub(crate) fn ask(&mut self, ask: &Ask) -> io::Result<Answer> {
        let mut line = serde_json::to_vec(ask)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line)?;
        let mut answer = String::new();
        if (&mut self.stream).take(MESSAGE_BYTES_MAX).read_line(&mut answer)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&answer)?)
    }

    /// Asks, and waits for the answer however long it takes.
    ///
    /// # Errors
    /// As [`Control::ask`].
    pub(crate) fn ask_patiently(&mut self, ask: &Ask) -> io::Result<Answer> {
        self.stream.get_ref().set_read_timeout(None)?;
        self.ask(ask)
    }

    /// The connection, for a message of another kind.
    pub(crate) fn into_stream(self) -> UnixStream {
        self.stream.into_inner()
    }

    /// Says that nothing more is asked, and waits until the other end has settled that: if it served nobody else, until it has
    /// ended and its store is closed.
    pub(crate) fn close(mut self) {
        // Who is gone already has nothing to settle.
        let _ = self.stream.get_mut().shutdown(std::net::Shutdown::Write);
        let _ = self.stream.read(&mut [0]);
    }
}

/// Where the service of a package has its socket; `RuntimeDirectory=larder` of its unit.
const SERVICE_FOLDER: &str = "/run/larder";
/// Longest message, in bytes.
const MESSAGE_BYTES_MAX: u64 = 64 << 10;
/// How long an answer may take: the time in which a large store is loaded, or closed.
const PATIENCE: Duration = Duration::from_secs(30);
