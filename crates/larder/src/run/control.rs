//! The control socket of a running Larder, through which commands of the same user find it, and its messages.
//!
//! Owns: the path of the socket, and the messages, one line of JSON each. Proxying is elsewhere. Invariants: the socket
//! is in a directory that only its owner can access, and the peer is verified to be that owner. A message has a limited
//! length.

mod private;
pub(crate) mod server;

use self::private::{Refusal, SERVICE_FOLDER};
use crate::{
    ground::failure::Failure,
    run::report,
    settings::{RunSettings, store_path},
};
use larder_http::steps;
use serde::{Deserialize, Serialize};
use std::{
    collections::HashSet,
    env,
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Write},
    net::SocketAddr,
    os::unix::{
        fs::{OpenOptionsExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    process,
    time::Duration,
};

/// A request to a running Larder.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ControlRequest {
    /// Opens a session, which lasts as long as the connection.
    Open {
        hosts: Vec<String>,
        except: Vec<String>,
        offline: bool,
        /// Networks that the proxy must permit as targets for the session.
        #[serde(default)]
        allow_targets: Vec<String>,
    },
    /// Returns the counters of the session.
    Figures,
    /// Describes the services on the listeners of this Larder.
    About,
    /// Reads the configuration again.
    Reload,
    /// Replaces this process by one with a newer program.
    Upgrade { program: Option<PathBuf>, check: bool },
    /// Starts an operator's command. After that, the connection carries HTTP, as on the admin listener.
    Operate,
}

impl ControlRequest {
    /// Parses a line that a client sent.
    ///
    /// # Errors
    /// The line is not a request that this version knows.
    pub(crate) fn parse(line: &str) -> serde_json::Result<Self> {
        steps::take(line.len());
        serde_json::from_str(line)
    }
}

/// The response to a request on the control socket.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ControlAnswer {
    Opened { proxy: SocketAddr, certificate: String },
    Figures(SessionFigures),
    About(ControlSummary),
    Operate,
    Reloaded { told: String },
    Upgraded { told: String },
    Refused { problem: String, help: String },
}

/// The counters of a session, and lists of what may need its owner's attention.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SessionFigures {
    pub(crate) requests: u64,
    pub(crate) from_cache: u64,
    pub(crate) bytes: u64,
    pub(crate) saved_bytes: u64,
    /// Number of tunnels that were not decrypted although their hosts are listed for interception.
    #[serde(default)]
    pub(crate) bypassed_count: u64,
    /// Targets of the tunnels that were not decrypted, each with the reason.
    #[serde(default)]
    pub(crate) bypassed: Vec<(String, String)>,
    /// Number of requests that failed because origins must not be contacted.
    #[serde(default)]
    pub(crate) missing_count: u64,
    /// URLs of the requests that failed because origins must not be contacted.
    #[serde(default)]
    pub(crate) missing: Vec<String>,
    /// Number of requests and tunnels whose targets the rules refused.
    #[serde(default)]
    pub(crate) denied_count: u64,
    /// Refused targets, each with the reason and the setting that would permit it.
    #[serde(default)]
    pub(crate) denied: Vec<(String, String)>,
    /// Number of tunnels that failed because the client rejected the certificate of the session's CA.
    #[serde(default)]
    pub(crate) rejected_count: u64,
    /// Hosts whose certificates clients rejected, each with the client's alert.
    #[serde(default)]
    pub(crate) rejected: Vec<(String, String)>,
}

/// The services on the listeners of a running Larder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ControlSummary {
    /// The address of the forward proxy. `None` if this Larder is not one.
    pub(crate) proxy: Option<SocketAddr>,
    /// The address of the first listener without TLS, whatever it serves.
    #[serde(default)]
    pub(crate) listener: Option<SocketAddr>,
    /// The CA certificate in PEM, which clients of intercepted hosts must trust.
    pub(crate) certificate: Option<String>,
    /// The parent proxy through which origins are contacted. `None` if there is none.
    #[serde(default)]
    pub(crate) parent: Option<String>,
    /// Whether this Larder only serves sites. Commands such as `larder exec` cannot use it then, because it is not a
    /// forward proxy.
    #[serde(default)]
    pub(crate) serves_sites_only: bool,
}

impl ControlSummary {
    /// Describes a Larder with these settings and bound addresses.
    pub(crate) fn of(settings: &RunSettings, listeners: &[SocketAddr]) -> Self {
        let plain = settings.proxy.listeners.iter().zip(listeners).find(|(listener, _)| !listener.tls);
        let listener = plain.map(|(_, address)| report::reachable(*address));
        let proxy = listener.filter(|_| settings.forwards());
        let intercept = settings.proxy.intercept.as_ref();
        // Reading fails only if the file has changed since the proxy read it at its start.
        let certificate = intercept.and_then(|intercept| fs::read_to_string(&intercept.authority.certificate).ok());
        let parent = settings.proxy.parents.members.first().map(|(parent, _)| parent.to_string());
        Self { proxy, listener, certificate, parent, serves_sites_only: !settings.forwards() }
    }
}

/// The path of a control socket. It also determines the paths of the lock file and the log file next to the socket.
pub(crate) struct ControlPath {
    folder: PathBuf,
    /// The file name of the socket.
    name: String,
}

impl ControlPath {
    /// Finds a directory for the socket, and creates it for its owner alone.
    ///
    /// The first usable one is taken: the service manager's, the user's runtime directory, the default store's, or one
    /// in the temporary directory.
    ///
    /// # Errors
    /// No directory can be used. The error is that of the last one.
    pub(crate) fn find() -> Result<Self, Failure> {
        let mut refused = None;
        for folder in folders() {
            match private::make(&folder) {
                Ok(()) => return Ok(Self { folder, name: SOCKET_NAME.to_owned() }),
                Err(error) => refused = Some((folder, error)),
            }
        }
        let (folder, error) = refused.expect("there is always the one in the temporary directory");
        let help = "set XDG_RUNTIME_DIR to a directory of yours that only you can access (chmod 700)";
        Err(Failure::runtime(format!("cannot create the control socket: {error}: {}", folder.display()), help))
    }

    /// Prints a warning for each control socket in this user's directories on which another user's process listens.
    pub(crate) fn warn_of_strangers() {
        let refused = folders().into_iter().filter_map(|folder| connect_to(&folder.join(SOCKET_NAME)).err());
        refused.for_each(|refusal| refusal.warn());
    }

    /// Connects to the forward proxy that this user started first, as `larder exec` does.
    ///
    /// Instances of Larder that are not forward proxies are skipped.
    pub(crate) fn connect_own() -> Option<Control> {
        let paths = folders().into_iter().flat_map(|folder| {
            [SOCKET_NAME, COMMANDS_SOCKET_NAME].map(|name| Self { folder: folder.clone(), name: name.to_owned() })
        });
        paths.into_iter().find_map(|path| {
            let mut control = path.connect()?;
            (!control.serves_sites_only()).then_some(control)
        })
    }

    /// Returns the control path for the path of a socket. `None` if the file name is not a valid one for a socket.
    pub(crate) fn of_socket(socket: &Path) -> Option<Self> {
        let folder = socket.parent()?.to_owned();
        let name = socket.file_name()?.to_str()?.to_owned();
        Some(Self { folder, name })
    }

    /// Returns the path for a Larder that serves only commands. It is used if the usual path belongs to a Larder that
    /// serves only sites.
    pub(crate) fn of_commands(&self) -> Self {
        Self { folder: self.folder.clone(), name: COMMANDS_SOCKET_NAME.to_owned() }
    }

    /// Connects to the Larder that a command is for: the one chosen with `LARDER_CONTROL`, or the only one that this
    /// user can reach.
    ///
    /// # Errors
    /// There are several and none is chosen, the chosen one does not respond, or the only one is not trusted.
    pub(crate) fn connect_any() -> Result<Option<Control>, Failure> {
        if let Some(chosen) = env::var_os(CHOICE).map(PathBuf::from) {
            let control = connect_to(&chosen).map_err(|refusal| refusal.failure())?;
            return control.map(|control| Some(control.impatient())).ok_or_else(|| {
                let help = format!("unset {CHOICE}, or set it to the control socket of a running larder");
                Failure::runtime(format!("no larder listens at {CHOICE}: {}", chosen.display()), help)
            });
        }
        let mut found = Vec::new();
        let mut refused = Vec::new();
        for socket in sockets() {
            match connect_to(&socket) {
                Ok(Some(control)) => found.push(control.impatient()),
                Ok(None) => {}
                Err(refusal) => refused.push(refusal),
            }
        }
        match refused.first() {
            Some(refusal) if found.is_empty() => return Err(refusal.failure()),
            _ => refused.iter().for_each(Refusal::warn),
        }
        if found.len() < 2 {
            return Ok(found.pop());
        }
        let listed: Vec<String> = found.into_iter().map(describe).collect();
        let help = format!("choose one, as in {CHOICE}={} larder ls", listed[0].split(' ').next().unwrap_or_default());
        Err(Failure::runtime(format!("several larders are running: {}", listed.join(", ")), help))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    /// Returns the path for another Larder of the same user, used if the usual path is taken.
    pub(crate) fn of_further(mut self) -> Self {
        self.name = format!("control-{}.sock", process::id());
        self
    }

    /// Returns the path of the log file of a Larder that serves only commands.
    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join("exec.log")
    }

    /// Waits for the lock that is required to create or remove the socket.
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

    /// Creates the socket and listens on it. Replaces an abandoned socket, on which no process listens. The caller must
    /// hold the lock.
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

    /// Removes the socket of this Larder, which is ending.
    pub(crate) fn remove(&self) {
        // While the lock is held, no other process creates a socket. A socket that cannot be removed is recognized as
        // dead later.
        let lock = self.lock();
        let _ = fs::remove_file(self.socket());
        drop(lock);
    }

    /// Connects to the Larder that listens on the socket. `None` if none does, or if it is not trusted.
    pub(crate) fn connect(&self) -> Option<Control> {
        connect_to(&self.socket()).ok().flatten()
    }
}

fn connect_to(socket: &Path) -> Result<Option<Control>, Refusal> {
    let Some(stream) = private::connect(socket)? else { return Ok(None) };
    // The Larder may be waiting for its store. One that never responds counts as absent.
    let timeouts = stream.set_read_timeout(Some(PATIENCE)).and(stream.set_write_timeout(Some(PATIENCE)));
    Ok(timeouts.ok().map(|()| Control { stream: BufReader::new(stream), socket: socket.to_owned() }))
}

/// Returns the directories that may contain this user's sockets, in order of preference.
fn folders() -> Vec<PathBuf> {
    // systemd.exec(5): one or more absolute paths, separated by colons.
    let service = env::var_os("RUNTIME_DIRECTORY").and_then(|paths| env::split_paths(&paths).next());
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let is_usable = |path: &PathBuf| path.is_absolute() && path.is_dir();
    let runtime = runtime.filter(is_usable).map(|runtime| runtime.join("larder"));
    let temporary = env::temp_dir().join(format!("larder-{}", rustix::process::geteuid().as_raw()));
    [service.filter(is_usable), runtime, store_path::user_folder().ok(), Some(temporary)]
        .into_iter()
        .flatten()
        // A longer path does not fit in a socket address (unix(7)).
        .filter(|folder| folder.as_os_str().len() <= FOLDER_BYTES_MAX)
        .collect()
}

/// Returns the sockets of all Larders that this user can reach, including the machine's service. Some may be dead.
fn sockets() -> Vec<PathBuf> {
    let mut sockets = Vec::new();
    let service = PathBuf::from(SERVICE_FOLDER);
    for folder in folders().into_iter().chain([service]) {
        let names = fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut here: Vec<PathBuf> = names.map(|entry| entry.path()).filter(|path| is_socket_name(path)).collect();
        // A directory that can be entered but not read is tried with the usual name.
        here.push(folder.join(SOCKET_NAME));
        here.sort_unstable();
        sockets.extend(here);
    }
    let mut seen = HashSet::new();
    sockets.retain(|socket| seen.insert(socket.clone()));
    sockets
}

fn is_socket_name(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name == SOCKET_NAME || (name.starts_with("control-") && name.ends_with(".sock"))
}

/// Describes a Larder for the user, by its socket and its address.
fn describe(mut control: Control) -> String {
    match control.ask(&ControlRequest::About) {
        Ok(ControlAnswer::About(ControlSummary { listener: Some(listener), .. })) => {
            format!("{} (listens on {listener})", control.place())
        }
        _ => control.place(),
    }
}

/// A connection to the control socket of a running Larder.
pub(crate) struct Control {
    stream: BufReader<UnixStream>,
    socket: PathBuf,
}

impl Control {
    /// Limits the wait for each byte of a response to [`SILENCE_MAX`].
    fn impatient(self) -> Self {
        // If this fails, the longer limit stays.
        let stream = self.stream.get_ref();
        let _ = stream.set_read_timeout(Some(SILENCE_MAX)).and(stream.set_write_timeout(Some(SILENCE_MAX)));
        self
    }

    /// Returns whether the Larder is not a forward proxy. If so, commands such as `larder exec` cannot use it.
    pub(crate) fn serves_sites_only(&mut self) -> bool {
        matches!(self.ask(&ControlRequest::About), Ok(ControlAnswer::About(about)) if about.serves_sites_only)
    }

    /// Returns the path of the socket.
    pub(crate) fn place(&self) -> String {
        self.socket.display().to_string()
    }

    /// Sends a request and waits for the response.
    ///
    /// # Errors
    /// The other end is gone, or its response is invalid.
    pub(crate) fn ask(&mut self, ask: &ControlRequest) -> io::Result<ControlAnswer> {
        let mut line = serde_json::to_vec(ask)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line)?;
        let mut answer = String::new();
        if (&mut self.stream).take(MESSAGE_BYTES_MAX).read_line(&mut answer)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&answer)?)
    }

    /// Sends a request like [`Self::ask`], but returns a failure with advice if the response does not arrive in time.
    ///
    /// # Errors
    /// The other end does not respond in time. Other errors are in the inner result.
    pub(crate) fn ask_or_fail(&mut self, ask: &ControlRequest) -> Result<io::Result<ControlAnswer>, Failure> {
        match self.ask(ask) {
            Err(error) if is_late(&error) => Err(silent(&self.place())),
            answered => Ok(answered),
        }
    }

    /// Sends a request and waits for the response without a time limit, after checking that the other end responds at
    /// all.
    ///
    /// # Errors
    /// The other end does not respond to a simple request in time.
    pub(crate) fn ask_patiently(&mut self, ask: &ControlRequest) -> Result<io::Result<ControlAnswer>, Failure> {
        // Its other errors are ignored, because the request below will have them too.
        let _ = self.ask_or_fail(&ControlRequest::About)?;
        Ok(self.stream.get_ref().set_read_timeout(None).and_then(|()| self.ask(ask)))
    }

    /// Returns the socket of the connection, for an operator's command over HTTP.
    pub(crate) fn into_stream(self) -> UnixStream {
        self.stream.into_inner()
    }

    /// Ends the session, and waits until the server has ended it too.
    ///
    /// If it was the last session of a Larder that serves only commands, this includes the end of that Larder and the
    /// closing of its store.
    pub(crate) fn close(mut self) {
        // If reading fails, the server is gone and the session has ended.
        let _ = self.stream.get_mut().shutdown(std::net::Shutdown::Write);
        let _ = self.stream.read(&mut [0]);
    }
}

/// Returns whether an error means that the other end did not respond in time.
pub(crate) fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Returns the failure for a Larder at the socket `place` that does not respond in time.
pub(crate) fn silent(place: &str) -> Failure {
    let help = "it may be stopped (kill -CONT PID continues it), or its disk may not respond; if it stays silent, \
                restart it";
    Failure::runtime(format!("the running larder has not responded for {} s: {place}", SILENCE_MAX.as_secs()), help)
}

/// Maximum time to wait for each byte of a response to a command.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The environment variable that chooses a Larder for commands, by the path of its control socket.
const CHOICE: &str = "LARDER_CONTROL";
const SOCKET_NAME: &str = "control.sock";
const COMMANDS_SOCKET_NAME: &str = "control-exec.sock";
/// Maximum length of the path of a socket's directory, in bytes. A socket's whole path can have 107 bytes, and the file
/// name needs the rest.
const FOLDER_BYTES_MAX: usize = 80;
/// Maximum length of a message, in bytes.
const MESSAGE_BYTES_MAX: u64 = 64 << 10;
/// Maximum time to wait for a response. Loading or closing a large store must be possible within it.
const PATIENCE: Duration = Duration::from_secs(30);
