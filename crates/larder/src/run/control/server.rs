//! The server side of the control socket: answers the commands of its own user.
//!
//! Owns: the sessions that commands open, each for as long as its connection. Their clients are served elsewhere.
//! Invariant: it answers only the user who runs this process, and root.

use super::{ControlAnswer, ControlPath, ControlRequest, ControlSummary, MESSAGE_BYTES_MAX, SessionFigures};
use crate::{
    ground::{failure::Failure, output::tell},
    run::{reload::Reloader, upgrade::UpgradeRequest},
    settings::mirrors,
};
use larder_device::IgnorePoison;
use larder_proxy::{HostPattern, HostRules, ProxyHandle, Session, SessionOptions};
use std::{
    io,
    os::unix::net::UnixListener as StdListener,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    sync::{mpsc, oneshot, watch},
};

/// Answers the requests on a control socket.
pub(crate) struct ControlServer {
    handle: ProxyHandle,
    about: Mutex<ControlSummary>,
    reloader: Arc<Reloader>,
    /// Passes upgrade requests to the task that can execute them.
    upgrades: mpsc::UnboundedSender<UpgradeRequest>,
    /// Number of open sessions.
    session_count: watch::Sender<usize>,
    /// Whether the server ends when its last session has ended.
    ends_with_sessions: bool,
    /// Whether the server is ending. It then answers no more requests.
    ends: AtomicBool,
}

impl ControlServer {
    pub(crate) fn new(
        handle: ProxyHandle,
        about: ControlSummary,
        reloader: Arc<Reloader>,
        upgrades: mpsc::UnboundedSender<UpgradeRequest>,
        ends_with_sessions: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            handle,
            about: Mutex::new(about),
            reloader,
            upgrades,
            session_count: watch::Sender::new(0),
            ends_with_sessions,
            ends: AtomicBool::new(false),
        })
    }

    /// Listens on the socket at the usual path, or at a different path if another Larder uses the usual one.
    ///
    /// Returns `None` after a warning if no path can be used. The proxy then runs without a control socket.
    pub(crate) fn bind() -> Option<(ControlPath, StdListener)> {
        let unfound =
            |why: &str| tell!("  warning  larder exec, ls, purge and other commands do not find this proxy: {why}");
        let mut path = ControlPath::find().map_err(|failure| unfound(failure.told().0)).ok()?;
        let lock = path.lock();
        if path.connect().is_some() {
            path = path.of_further();
        }
        match lock.and_then(|_lock| path.bind()) {
            Ok(listener) => Some((path, listener)),
            Err(error) => {
                unfound(&format!("{error}: {}", path.socket().display()));
                None
            }
        }
    }

    /// Answers requests as long as the runtime exists.
    ///
    /// # Errors
    /// The listener cannot be used.
    pub(crate) async fn serve(self: Arc<Self>, listener: StdListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // The process has no descriptors left. Connections must end before another attempt makes sense.
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let is_ours = |id: u32| id == 0 || id == rustix::process::geteuid().as_raw();
            if stream.peer_cred().is_ok_and(|peer| is_ours(peer.uid())) {
                let this = Arc::clone(&self);
                tokio::spawn(async move { this.answer(stream).await });
            }
        }
    }

    /// Reads the configuration again and puts it into force. Returns a description of the result.
    ///
    /// # Errors
    /// The configuration is invalid. The previous one stays in force.
    pub(crate) async fn reload(self: &Arc<Self>) -> Result<String, Failure> {
        let this = Arc::clone(self);
        // On a blocking thread, because reloading reads files.
        let reloaded = tokio::task::spawn_blocking(move || {
            let told = this.reloader.reload()?;
            *this.about() = this.reloader.about(&told);
            Ok(told.to_string())
        });
        reloaded.await.expect("reloading does not panic")
    }

    fn about(&self) -> MutexGuard<'_, ControlSummary> {
        self.about.lock().ignore_poison()
    }

    /// Waits until the last session has ended. After that, no request is answered.
    pub(crate) async fn idle(&self) {
        let mut count = self.session_count.subscribe();
        // Waiting cannot fail, because this server owns the sender. The first wait has a limit, because the process
        // that started this one may end before it opens a session.
        let _ = tokio::time::timeout(FIRST_PATIENCE, count.wait_for(|count| *count > 0)).await;
        let _ = count.wait_for(|count| *count == 0).await;
        self.ends.store(true, Relaxed);
    }

    async fn answer(self: &Arc<Self>, stream: UnixStream) {
        let mut stream = BufReader::new(stream);
        let mut session = None;
        // A conversation that fails is closed like one that ends.
        if let Ok(NextStep::Operate) = self.converse(&mut stream, &mut session).await {
            // This fails while the proxy is stopping. The client then gets no response.
            let _ = stream.into_inner().into_std().and_then(|stream| self.handle.serve_operator(stream));
        }
        if session.take().is_some() {
            self.session_count.send_modify(|count| *count -= 1);
            if self.ends_with_sessions && *self.session_count.borrow() == 0 {
                // The connection closes when the process ends, after all work is complete. That tells the client that
                // it may end.
                std::future::pending::<()>().await;
            }
        }
    }

    async fn converse(
        self: &Arc<Self>,
        stream: &mut BufReader<UnixStream>,
        session: &mut Option<Session>,
    ) -> io::Result<NextStep> {
        loop {
            let mut line = String::new();
            if (&mut *stream).take(MESSAGE_BYTES_MAX).read_line(&mut line).await? == 0 {
                return Ok(NextStep::End);
            }
            if self.ends.load(Relaxed) {
                return Ok(NextStep::End);
            }
            let answer = match ControlRequest::parse(&line) {
                Ok(ControlRequest::Open { .. }) if session.is_some() => {
                    refused("this connection already has a session", "open another")
                }
                Ok(ControlRequest::Open { allow_targets, .. }) if !self.reloader.allows_targets(&allow_targets) => {
                    not_allowed(&allow_targets)
                }
                Ok(ControlRequest::Open { hosts, except, offline, .. }) => {
                    // The process at the other end is the one whose command will use the session.
                    let owner_process = stream.get_ref().peer_cred().ok().and_then(|peer| peer.pid()?.try_into().ok());
                    let options = SessionOptions { offline, owner_process, ..SessionOptions::default() };
                    self.open(session, &hosts, &except, options)
                }
                Ok(ControlRequest::Figures) => {
                    ControlAnswer::Figures(session.as_ref().map(figures).unwrap_or_default())
                }
                Ok(ControlRequest::About) => ControlAnswer::About(self.about().clone()),
                Ok(ControlRequest::Reload) => match self.reload().await {
                    Ok(told) => ControlAnswer::Reloaded { told },
                    Err(failure) => refusal_of(failure),
                },
                Ok(ControlRequest::Upgrade { .. }) if self.ends_with_sessions => {
                    refused("this larder was started by larder exec alone, and ends with it", "start larder run first")
                }
                Ok(ControlRequest::Upgrade { program, check }) => {
                    let (answer, told) = self.upgrade(program, check).await;
                    respond(stream, &answer).await?;
                    // Sending fails if the proxy continues, when no task waits for this message.
                    let _ = told.send(());
                    continue;
                }
                Ok(ControlRequest::Operate) => ControlAnswer::Operate,
                Err(error) => {
                    refused(&format!("unknown request: {error}"), "use the same version of larder on both ends")
                }
            };
            respond(stream, &answer).await?;
            if matches!(answer, ControlAnswer::Operate) {
                return Ok(NextStep::Operate);
            }
        }
    }

    /// Starts an upgrade. Returns the response, and a sender with which to report that the response was sent.
    async fn upgrade(&self, program: Option<PathBuf>, is_check: bool) -> (ControlAnswer, oneshot::Sender<()>) {
        let (answer, answered) = oneshot::channel();
        let (told, is_told) = oneshot::channel();
        let asked = self.upgrades.send(UpgradeRequest { program, is_check, answer, is_told });
        let stops = || refused("the running larder is stopping", "start it again with larder run");
        let answer = match answered.await {
            _ if asked.is_err() => stops(),
            Ok(Ok(told)) => ControlAnswer::Upgraded { told },
            Ok(Err(failure)) => refused(&failure.placed(), failure.told().1),
            Err(_) => stops(),
        };
        (answer, told)
    }

    fn open(
        &self,
        session: &mut Option<Session>,
        hosts: &[String],
        except: &[String],
        options: SessionOptions,
    ) -> ControlAnswer {
        let parse = |texts: &[String]| texts.iter().map(|text| text.parse()).collect::<Result<Vec<HostPattern>, _>>();
        let hosts = match (parse(hosts), parse(except)) {
            (Ok(hosts), Ok(except)) => HostRules { hosts, except },
            (Err(error), _) | (_, Err(error)) => return refused(&error.to_string(), "name hosts as --intercept does"),
        };
        let rules = larder_http::Rules::new(mirrors::rules_for_all());
        match self.handle.open_session(SessionOptions { hosts, rules, ..options }) {
            Ok(opened) => {
                let proxy = opened.address();
                let certificate = opened.certificate_pem().to_owned();
                *session = Some(opened);
                self.session_count.send_modify(|count| *count += 1);
                ControlAnswer::Opened { proxy, certificate }
            }
            Err(error) => refused(
                &format!("the running larder cannot open a session: {error}"),
                "stop it, or run it as a forward proxy",
            ),
        }
    }
}

async fn respond(stream: &mut BufReader<UnixStream>, answer: &ControlAnswer) -> io::Result<()> {
    let mut text = serde_json::to_vec(answer)?;
    text.push(b'\n');
    stream.get_mut().write_all(&text).await
}

/// Returns the refusal of a command that needs targets in networks that this Larder does not permit.
fn not_allowed(networks: &[String]) -> ControlAnswer {
    refused(
        &format!("the running larder does not allow all of these targets: {}", networks.join(", ")),
        "give --allow-target to larder run, or set forward.allow_targets; larder exec commands that run at the same \
         time share one larder, so the first of them must name the targets, too",
    )
}

/// The use of a connection after its control requests.
enum NextStep {
    End,
    /// The proxy serves the connection, which carries an operator's command over HTTP.
    Operate,
}

/// Returns the response for an invalid configuration, with the place of the fault.
fn refusal_of(failure: Failure) -> ControlAnswer {
    let help = failure.told().1.to_owned();
    let shown = failure.placed();
    refused(&format!("nothing changed: {shown}"), &help)
}

fn refused(problem: &str, help: &str) -> ControlAnswer {
    ControlAnswer::Refused { problem: problem.to_owned(), help: help.to_owned() }
}

fn figures(session: &Session) -> SessionFigures {
    let stats = session.stats();
    let bypassed = stats.bypassed.into_iter().map(|(target, why)| (target, why.to_string())).collect();
    SessionFigures {
        requests: stats.requests,
        from_cache: stats.hits,
        bytes: stats.sent_bytes,
        saved_bytes: stats.hit_bytes,
        bypassed_count: stats.bypassed_count,
        bypassed,
        missing_count: stats.missing_count,
        missing: stats.missing,
        denied_count: stats.denied_count,
        denied: stats.denied,
        rejected_count: stats.rejected_count,
        rejected: stats.rejected,
    }
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Time for which a Larder that serves only sessions waits for the first one.
const FIRST_PATIENCE: Duration = Duration::from_secs(30);
