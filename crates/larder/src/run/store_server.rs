//! Serves one store to other programs of this machine, over a Unix socket.
//!
//! Owns: the threads, and the order of a stop: running requests end, then the socket is removed, then the caller closes
//! the store. `client` serves one client, `protocol` has the messages, `handles` the open values. Invariants: a
//! client that stops holds up only itself. Connections, handles and memory have limits, whatever clients send, and each
//! connection has a share of them that no other can take.
//!
//! The idea is HashCache's (NSDI 2009): its storage is one for several programs, which open, read, write, seek and
//! close values like files.

mod client;
mod handles;
mod protocol;
mod socket_file;

use crate::ground::failure::Failure;
use client::StoreClient;
use handles::SharedLimits;
use larder_cache::Cache;
use protocol::{RequestRefusal, Status};
use socket_file::SocketFile;
use std::{
    io,
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::{
    net::{UnixListener, UnixStream},
    runtime,
    sync::{Semaphore, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

/// Maximum number of threads that serve clients. More would only wait for the same disk.
const THREADS_MAX: usize = 4;
/// Time that running requests may take to end when the server stops.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// Pause after a failed accept. The process has no descriptors left, so another attempt at once would fail too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The options of a store's server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerOptions<'a> {
    pub(crate) socket: &'a Path,
    /// The permission bits of the socket's file.
    pub(crate) mode: u32,
    /// Maximum number of connections.
    pub(crate) connections_max: usize,
}

/// A running server of a store. It stops when it is dropped.
pub(crate) struct StoreServer {
    threads: Vec<JoinHandle<()>>,
    stop: watch::Sender<bool>,
    socket: SocketFile,
}

/// The state that the threads of a server share.
#[derive(Clone)]
struct SharedParts {
    cache: Cache,
    limits: SharedLimits,
    /// One permit for each connection that can still be accepted.
    connections: Arc<Semaphore>,
    connections_max: usize,
    stop: watch::Receiver<bool>,
}

impl StoreServer {
    /// Listens on the socket, and starts to serve clients.
    ///
    /// # Errors
    /// The socket cannot be created, or the system has no threads left.
    pub(crate) fn start(cache: &Cache, options: ServerOptions<'_>) -> Result<Self, Failure> {
        let socket = SocketFile::listen(options.socket, options.mode)?;
        let stop = watch::Sender::new(false);
        let parts = SharedParts {
            cache: cache.clone(),
            limits: SharedLimits::new(cache.value_bytes_max()),
            connections: Arc::new(Semaphore::new(options.connections_max)),
            connections_max: options.connections_max,
            stop: stop.subscribe(),
        };
        let mut server = Self { threads: Vec::new(), stop, socket };
        let count = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        for number in 0..count {
            let thread = server.start_thread(number, &parts).map_err(|error| {
                let help = "raise the limits on threads and open files, or stop other programs";
                Failure::runtime(format!("cannot start a thread for clients: {error}"), help)
            })?;
            server.threads.push(thread);
        }
        Ok(server)
    }

    /// Waits until running requests have ended, closes all connections and removes the socket.
    pub(crate) fn stop(mut self) {
        self.end();
    }

    fn start_thread(&self, number: usize, parts: &SharedParts) -> io::Result<JoinHandle<()>> {
        // The runtime and its listener are created before the thread, so that the caller gets their errors.
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = self.socket.listener.try_clone()?;
        let listener = runtime.block_on(async { UnixListener::from_std(listener) })?;
        let parts = parts.clone();
        let builder = thread::Builder::new().name(format!("larder-store-{number}"));
        builder.spawn(move || runtime.block_on(serve(listener, parts)))
    }

    fn end(&mut self) {
        self.stop.send_replace(true);
        for thread in self.threads.drain(..) {
            // A panic of the thread was already printed. The other threads end normally.
            let _ = thread.join();
        }
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Accepts clients and serves them, until the server stops.
async fn serve(listener: UnixListener, parts: SharedParts) {
    let mut clients = JoinSet::new();
    let mut stop = parts.stop.clone();
    loop {
        tokio::select! {
            _ = stop.wait_for(|stops| *stops) => break,
            Some(_) = clients.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => parts.admit(stream, &mut clients),
                Err(_) => sleep(ACCEPT_PAUSE).await,
            }
        }
    }
    // Clients that are still busy after [`STOP_PATIENCE`] are cut off.
    let _ = timeout(STOP_PATIENCE, async { while clients.join_next().await.is_some() {} }).await;
}

impl SharedParts {
    fn admit(&self, stream: UnixStream, clients: &mut JoinSet<()>) {
        let Ok(place) = Arc::clone(&self.connections).try_acquire_owned() else {
            return refuse(&stream, self.connections_max);
        };
        let client = StoreClient::new(stream, &self.cache, &self.limits, self.stop.clone());
        clients.spawn(async move {
            // An error means that the client is gone or has stalled.
            let _ = client.serve().await;
            drop(place);
        });
    }
}

/// Refuses a connection beyond the maximum number.
fn refuse(stream: &UnixStream, connections_max: usize) {
    let text = format!("{connections_max} programs are connected: try again later, or raise --connections");
    let refusal = protocol::refusal_response(&RequestRefusal::new(Status::TooMany, text));
    // The buffer of a new connection has room for this text. Otherwise the client only sees that the connection closes.
    let _ = stream.try_write(&[&protocol::hello()[..], &refusal].concat());
}
