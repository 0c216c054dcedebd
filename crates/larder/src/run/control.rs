//! The control socket of a running Larder: how `larder exec` and `larder env` of the same user find it, and their
//! messages.
//!
//! Owns: its path, and the messages, one line of JSON each. Proxying is elsewhere. Invariants: the socket is in a
//! directory that only its owner can access, and the peer is verified to be that owner. A message has a limited length.

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
    /// Open a session, which lasts as long as the connection.
    Open {
        hosts: Vec<String>,
        except: Vec<String>,
        offline: bool,
        /// Networks that the Larder must allow as targets.
        #[serde(default)]
        allow_targets: Vec<String>,
    },
    /// Return the session's figures.
    Figures,
    /// Describe the Larder's own listeners.
    About,
    /// Read the configuration again.
    Reload,
    /// Replace this process with a newer program.
    Upgrade { program: Option<PathBuf>, check: bool },
    /// Start an operator's command: the bytes that follow on the connection are HTTP, as on the admin listener.
    Operate,
}

impl ControlRequest {
    /// Parses a line of a client.
    ///
    /// # Errors
    /// The line is no request that this version knows.
    pub(crate) fn parse(line: &str) -> serde_json::Result<Self> {
        steps::take(line.len());
        serde_json::from_str(line)
    }
}

/// The response to a request.
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

/// The figures of a session.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SessionFigures {
    pub(crate) requests: u64,
    pub(crate) from_cache: u64,
    pub(crate) bytes: u64,
    pub(crate) saved_bytes: u64,
    /// Tunnels that bypassed the cache although their hosts are listed for interception.
    #[serde(default)]
    pub(crate) bypassed_count: u64,
    /// Targets of these tunnels, with the reasons.
    #[serde(default)]
    pub(crate) bypassed: Vec<(String, String)>,
    /// Requests without a response, because no origin may be contacted.
    #[serde(default)]
    pub(crate) missing_count: u64,
    /// URLs of these requests.
    #[serde(default)]
    pub(crate) missing: Vec<String>,
    /// Requests and tunnels whose targets the rules for targets refuse.
    #[serde(default)]
    pub(crate) denied_count: u64,
    /// The targets of these requests, each with the reason and the setting that allows it.
    #[serde(default)]
    pub(crate) denied: Vec<(String, String)>,
}

/// The services on a Larder's own listeners.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ControlSummary {
    /// The address of the forward proxy, or `None` if there is none.
    pub(crate) proxy: Option<SocketAddr>,
    /// The address of a listener without TLS, of whatever kind.
    #[serde(default)]
    pub(crate) listener: Option<SocketAddr>,
    /// The CA certificate in PEM, which clients of intercepted hosts must trust.
    pub(crate) certificate: Option<String>,
    /// The proxy through which origins are contacted.
    #[serde(default)]
    pub(crate) parent: Option<String>,
    /// Whether the Larder serves no client as a forward proxy, so that no command can go through it.
    #[serde(default)]
    pub(crate) serves_sites_only: bool,
}

impl ControlSummary {
    /// Describes a proxy with these settings and listening addresses.
    pub(crate) fn of(settings: &RunSettings, listeners: &[SocketAddr]) -> Self {
        let plain = settings.proxy.listeners.iter().zip(listeners).find(|(listener, _)| !listener.tls);
        let listener = plain.map(|(_, address)| report::reachable(*address));
        let proxy = listener.filter(|_| settings.forwards());
        let intercept = settings.proxy.intercept.as_ref();
        // The file was read when the proxy adopted the settings.
        let certificate = intercept.and_then(|intercept| fs::read_to_string(&intercept.authority.certificate).ok());
        let parent = settings.proxy.parents.members.first().map(|(parent, _)| parent.to_string());
        Self { proxy, listener, certificate, parent, serves_sites_only: !settings.forwards() }
    }
}

/// The path of a control socket, and of the files next to it.
pub(crate) struct ControlPath {
    folder: PathBuf,
    /// The socket's name in the folder.
    name: String,
}

impl ControlPath {
    /// Finds a folder for the socket, and creates it for its owner alone.
    ///
    /// The first usable one is taken: the service manager's, the user's runtime directory, the default store's, or one
    /// in the temporary directory.
    ///
    /// # Errors
    /// None is usable; the error says why the last one is not.
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

    /// Warns of control sockets in this user's folders on which another user's process listens.
    pub(crate) fn warn_of_strangers() {
        let refused = folders().into_iter().filter_map(|folder| connect_to(&folder.join(SOCKET_NAME)).err());
        refused.for_each(|refusal| refusal.warn());
    }

    /// Connects to this user's forward proxy that was started first, as `larder exec` does. A Larder that serves sites
    /// only is passed over.
    pub(crate) fn connect_own() -> Option<Control> {
        let paths = folders().into_iter().flat_map(|folder| {
            [SOCKET_NAME, COMMANDS_SOCKET_NAME].map(|name| Self { folder: folder.clone(), name: name.to_owned() })
        });
        paths.into_iter().find_map(|path| {
            let mut control = path.connect()?;
            (!control.serves_sites_only()).then_some(control)
        })
    }

    /// Returns the path whose socket this is.
    pub(crate) fn of_socket(socket: &Path) -> Option<Self> {
        let folder = socket.parent()?.to_owned();
        let name = socket.file_name()?.to_str()?.to_owned();
        Some(Self { folder, name })
    }

    /// Returns the path for a Larder that serves only commands, if one that serves sites only has the usual path.
    pub(crate) fn of_commands(&self) -> Self {
        Self { folder: self.folder.clone(), name: COMMANDS_SOCKET_NAME.to_owned() }
    }

    /// Connects to the Larder for a command: the only one that this user can reach, or the chosen one.
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

    /// Returns the path for a further Larder, if another one has the usual path.
    pub(crate) fn of_further(mut self) -> Self {
        self.name = format!("control-{}.sock", process::id());
        self
    }

    /// Returns the path of the log of a Larder that serves only commands.
    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join("exec.log")
    }

    /// Waits for the lock that is needed to create or remove the socket.
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

    /// Listens on the socket, replacing one on which no process listens. Requires the lock.
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

    /// Removes the socket of a Larder that is ending.
    pub(crate) fn remove(&self) {
        // While the lock is held, no other process creates a socket. A socket that cannot be removed is later
        // recognized as dead.
        let lock = self.lock();
        let _ = fs::remove_file(self.socket());
        drop(lock);
    }

    /// Connects to the Larder that listens. Returns `None` if there is none, or if it is not trusted.
    pub(crate) fn connect(&self) -> Option<Control> {
        connect_to(&self.socket()).ok().flatten()
    }
}

fn connect_to(socket: &Path) -> Result<Option<Control>, Refusal> {
    let Some(stream) = private::connect(socket)? else { return Ok(None) };
    // The proxy may wait for its store. A proxy that never responds counts as absent.
    let timeouts = stream.set_read_timeout(Some(PATIENCE)).and(stream.set_write_timeout(Some(PATIENCE)));
    Ok(timeouts.ok().map(|()| Control { stream: BufReader::new(stream), socket: socket.to_owned() }))
}

/// Returns the folders that may contain this user's own sockets, best first.
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

/// Returns the sockets of all Larders that this user can reach: the user's own, and that of the machine's service. Dead
/// sockets are included.
fn sockets() -> Vec<PathBuf> {
    let mut sockets = Vec::new();
    let service = PathBuf::from(SERVICE_FOLDER);
    for folder in folders().into_iter().chain([service]) {
        let names = fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut here: Vec<PathBuf> = names.map(|entry| entry.path()).filter(|path| is_socket_name(path)).collect();
        // If a folder can be entered but not read, the usual name is tried.
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

/// Describes a Larder by its socket and its listening addresses.
fn describe(mut control: Control) -> String {
    match control.ask(&ControlRequest::About) {
        Ok(ControlAnswer::About(ControlSummary { listener: Some(listener), .. })) => {
            format!("{} (listens on {listener})", control.place())
        }
        _ => control.place(),
    }
}

/// A connection to a running Larder.
pub(crate) struct Control {
    stream: BufReader<UnixStream>,
    socket: PathBuf,
}

impl Control {
    /// Limits the wait for the next byte to [`SILENCE_MAX`].
    fn impatient(self) -> Self {
        // An error is ignored: the longer limit then stays.
        let stream = self.stream.get_ref();
        let _ = stream.set_read_timeout(Some(SILENCE_MAX)).and(stream.set_write_timeout(Some(SILENCE_MAX)));
        self
    }

    /// Returns whether no command can go through this Larder.
    pub(crate) fn serves_sites_only(&mut self) -> bool {
        matches!(self.ask(&ControlRequest::About), Ok(ControlAnswer::About(about)) if about.serves_sites_only)
    }

    /// Returns the path of the socket.
    pub(crate) fn place(&self) -> String {
        self.socket.display().to_string()
    }

    /// Sends a request, and waits for the response.
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

    /// Sends a request, and waits for the response. A response that is late is a failure, any other error is returned.
    ///
    /// # Errors
    /// The other end does not respond in time.
    pub(crate) fn ask_or_fail(&mut self, ask: &ControlRequest) -> Result<io::Result<ControlAnswer>, Failure> {
        match self.ask(ask) {
            Err(error) if is_late(&error) => Err(silent(&self.place())),
            answered => Ok(answered),
        }
    }

    /// Sends a request, and waits for the response without a time limit, provided that the other end responds at all.
    ///
    /// # Errors
    /// The other end does not respond to a simple request in time.
    pub(crate) fn ask_patiently(&mut self, ask: &ControlRequest) -> Result<io::Result<ControlAnswer>, Failure> {
        // An error is ignored: the request below has it, too.
        let _ = self.ask_or_fail(&ControlRequest::About)?;
        Ok(self.stream.get_ref().set_read_timeout(None).and_then(|()| self.ask(ask)))
    }

    /// Returns the connection, for messages of another kind.
    pub(crate) fn into_stream(self) -> UnixStream {
        self.stream.into_inner()
    }

    /// Ends the session, and waits until the server has ended it, too. If this was the server's last session, that
    /// includes its end and the closing of its store.
    pub(crate) fn close(mut self) {
        // An error is ignored: if the server is gone, the session has ended.
        let _ = self.stream.get_mut().shutdown(std::net::Shutdown::Write);
        let _ = self.stream.read(&mut [0]);
    }
}

/// Returns whether an error means that the other end did not respond in time.
pub(crate) fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Returns the failure for a proxy at `place` that does not respond in time.
pub(crate) fn silent(place: &str) -> Failure {
    let help = "it may be stopped (kill -CONT PID continues it), or its disk may not respond; if it stays silent, \
                restart it";
    Failure::runtime(format!("the running larder has not responded for {} s: {place}", SILENCE_MAX.as_secs()), help)
}

/// Longest wait for the next byte of a response to a command.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The environment variable that chooses the Larder for commands by its control socket.
const CHOICE: &str = "LARDER_CONTROL";
const SOCKET_NAME: &str = "control.sock";
const COMMANDS_SOCKET_NAME: &str = "control-exec.sock";
/// Longest folder of a socket, in bytes. A socket address has at most 107 bytes, and the remainder is for the name.
const FOLDER_BYTES_MAX: usize = 80;
/// Longest message, in bytes.
const MESSAGE_BYTES_MAX: u64 = 64 << 10;
/// Longest wait for a response, which covers loading or closing a large store.
const PATIENCE: Duration = Duration::from_secs(30);
