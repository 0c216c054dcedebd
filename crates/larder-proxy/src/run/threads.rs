//! A worker's thread: a single-threaded runtime, the accept loops, the one-second tick, and this thread's ring of the
//! store.
//!
//! Owns: this thread's sockets under the current configuration. Invariants: a connection stays on the thread that
//! accepted it. A reload closes no connection. If a listener's address stays, connections that wait there are accepted.

use std::{
    io,
    net::{IpAddr, TcpListener as StdListener},
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use tokio::{
    net::{TcpListener, TcpStream, UnixStream},
    sync::{
        mpsc::{self, UnboundedReceiver},
        watch,
    },
    task::{JoinHandle, JoinSet},
};

use crate::{
    door::{
        connection::{self, ListenerAccess},
        opening::PeerAddress,
        shed::{HTTP1_REFUSAL, shed},
    },
    figures::metrics::WorkerMetrics,
    fleet,
    ground::{
        cache::{Cache, purges::Purges},
        config::{Listener, ProxyConfig},
        handed::ClientConnection,
        overload::Shortage,
        target::is_within,
        watch::WatchOrder,
    },
    operators::{admin, missing::MissingList},
    origins::{checks, uplink},
    road::client::socket::TunneledConnection,
    run::{
        StopOrder, governor,
        leaving::ListeningSocket,
        opening::{NewConfiguration, NewListener, WorkerMessage},
        ring,
        shared::ProxyState,
        sockets::WorkerSockets,
        worker::{ConnectionPresence, Worker, WorkerThread},
    },
    targets::siblings,
};

/// Everything that a worker's thread needs to start.
pub(crate) struct WorkerStart {
    pub(crate) index: usize,
    pub(crate) shared: Arc<ProxyState>,
    pub(crate) metrics: Arc<WorkerMetrics>,
    /// The sockets of each configured listener.
    pub(crate) sockets: WorkerSockets,
    /// Messages to the worker while it runs.
    pub(crate) openings: UnboundedReceiver<WorkerMessage>,
    /// The admin listener's socket. `None` unless this worker serves it.
    pub(crate) admin: Option<StdListener>,
    pub(crate) pages: admin::AdminPages,
    /// Receives the order to stop.
    pub(crate) stop: watch::Receiver<Option<StopOrder>>,
}

/// Runs a worker until it is ordered to stop: the main function of the worker's thread.
pub(crate) fn run(start: WorkerStart) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run_inside(start))
}

async fn run_inside(start: WorkerStart) -> io::Result<()> {
    let WorkerStart { index, shared, metrics, sockets, mut openings, admin, pages, mut stop } = start;
    let (inside, arriving) = mpsc::unbounded_channel();
    let thread = Arc::new(WorkerThread::new(index, metrics, inside));
    let mut accepting = JoinSet::new();
    if index == 0 {
        accepting.spawn(Arc::clone(&shared.history).keep());
    }
    let mut doors = OpenListeners::open(&thread, index == 0, shared, sockets)?;
    // Spawned as a task, because waking a task costs no system call, but waking the root future does.
    let drivers = doors.worker.cache.shared.store.as_ref().map(larder_store::Store::attach_thread);
    for driver in drivers.into_iter().flatten() {
        tokio::spawn(ring::drive(ring::watch(driver)?));
    }
    accepting.spawn(serve_inside(Arc::clone(&thread), arriving));
    if let Some(listener) = admin {
        accepting.spawn(admin::serve(Arc::clone(&thread), nonblocking(listener)?, pages.clone()));
    }
    let ticking = tokio::spawn(tick(Arc::clone(&thread)));
    let told = loop {
        tokio::select! {
            // An error means that the proxy was dropped without a shutdown, so exchanges are cut off.
            told = stop.wait_for(Option::is_some) => break told.map_or(StopOrder::AT_ONCE, |told| told.unwrap_or(StopOrder::AT_ONCE)),
            Some(opening) = openings.recv() => match opening {
                WorkerMessage::Configuration(changed) => doors.change(*changed),
                WorkerMessage::Listener(listener) => open_listener(&mut accepting, &thread, listener),
                // Sending fails if the requester has stopped waiting.
                WorkerMessage::Ping(answer) => drop(answer.send(())),
                WorkerMessage::Sockets(answer) => drop(answer.send(doors.sockets())),
                WorkerMessage::Goodbye(says) => thread.watches.say_goodbye(says),
                WorkerMessage::HandOver(successor) => thread.watches.lead_to(Some(successor)),
                WorkerMessage::Connection(connection) => doors.adopt(connection),
                WorkerMessage::Operator(stream) => open_operator(&mut accepting, &thread, stream, pages.clone()),
            },
        }
        while accepting.try_join_next().is_some() {}
    };
    accepting.shutdown().await;
    let worker = doors.close().await;
    // Messages that were sent before the order to stop may still be in the queue.
    while let Ok(opening) = openings.try_recv() {
        if let WorkerMessage::HandOver(successor) = opening {
            thread.watches.lead_to(Some(successor));
        }
    }
    drain(&thread, told, stop).await;
    thread.watches.lead_to(None);
    ticking.abort();
    drop(worker);
    Ok(())
}

/// The listeners of this thread under the current configuration, and the tasks that the thread runs.
struct OpenListeners {
    thread: Arc<WorkerThread>,
    /// Whether this thread maintains the state that all workers share, such as that of origins. Only one thread does.
    is_first: bool,
    worker: Arc<Worker>,
    open: Vec<OpenDoor>,
    looking_after: JoinSet<()>,
}

/// A configured listener that is open on this thread.
struct OpenDoor {
    listener: Listener,
    /// Second handles of the listener's sockets. After a reload that changes the listener, or in the next process, they
    /// accept the connections.
    sockets: Vec<StdListener>,
    accepting: Vec<JoinHandle<()>>,
}

impl OpenDoor {
    fn stop_accepting(&self) {
        self.accepting.iter().for_each(JoinHandle::abort);
    }
}

impl OpenListeners {
    fn open(
        thread: &Arc<WorkerThread>,
        is_first: bool,
        shared: Arc<ProxyState>,
        sockets: WorkerSockets,
    ) -> io::Result<Self> {
        let worker = Worker::new(thread, shared);
        let thread = Arc::clone(thread);
        let mut doors = Self { thread, is_first, worker, open: Vec::new(), looking_after: JoinSet::new() };
        let listeners = doors.worker.shared.config.listeners.clone();
        for (listener, sockets) in listeners.into_iter().zip(sockets) {
            doors.open.push(doors.open_door(listener, sockets)?);
        }
        doors.look_after_origins();
        Ok(doors)
    }

    /// Puts another configuration into force. Open connections use it from their next request on.
    fn change(&mut self, changed: NewConfiguration) {
        let NewConfiguration { shared, sockets } = changed;
        self.worker = Worker::new(&self.thread, shared);
        let mut before = std::mem::take(&mut self.open);
        for (listener, sockets) in self.worker.shared.config.listeners.clone().into_iter().zip(sockets) {
            let at = before.iter().position(|door| door.listener.address == listener.address);
            let door = match at.map(|at| before.swap_remove(at)) {
                Some(door) if door.listener == listener => Ok(door),
                Some(door) => {
                    door.stop_accepting();
                    self.open_door(listener, door.sockets)
                }
                None => self.open_door(listener, sockets),
            };
            match door {
                Ok(door) => self.open.push(door),
                Err(error) => tracing::error!(%error, "a listener cannot be used"),
            }
        }
        before.iter().for_each(OpenDoor::stop_accepting);
        self.look_after_origins();
    }

    fn open_door(&self, listener: Listener, sockets: Vec<StdListener>) -> io::Result<OpenDoor> {
        let door = Arc::new(ListenerAccess { listener: listener.clone(), session: None });
        let own = sockets.iter().map(|socket| nonblocking(socket.try_clone()?)).collect::<io::Result<Vec<_>>>()?;
        let accepting =
            own.into_iter().map(|own| tokio::spawn(accept(Arc::clone(&self.thread), own, Arc::clone(&door))));
        Ok(OpenDoor { listener, accepting: accepting.collect(), sockets })
    }

    /// Serves a connection that the previous process handed over.
    fn adopt(&self, connection: ClientConnection) {
        let ClientConnection { listener, client, socket } = connection;
        let Some(open) = self.open.iter().find(|door| door.listener.address == listener) else {
            return tracing::debug!(%listener, "a connection arrived for a listener that no longer exists");
        };
        if open.listener.tls && client.is_some() {
            // A reload has added TLS to the listener since the connection was accepted.
            return tracing::debug!(%listener, "a connection without TLS was handed over for a TLS listener");
        }
        let door = Arc::new(ListenerAccess { listener: open.listener.clone(), session: None });
        let accepted = socket.set_nonblocking(true).and_then(|()| {
            let peer = client.map_or_else(
                || socket.peer_addr().map(PeerAddress::Accepted),
                |client| Ok(PeerAddress::Known(client)),
            )?;
            Ok((TcpStream::from_std(socket)?, peer))
        });
        match accepted {
            Ok((socket, peer)) => serve(&self.worker, ConnectionPresence::of(&self.worker), (socket, peer), door),
            Err(error) => tracing::debug!(%error, "a connection that was handed over has ended"),
        }
    }

    /// Returns second handles of the sockets of all listeners.
    fn sockets(&self) -> io::Result<Vec<ListeningSocket>> {
        let all = self.open.iter().flat_map(|door| door.sockets.iter().map(|socket| (door.listener.address, socket)));
        all.map(|(address, socket)| Ok(ListeningSocket { address, socket: socket.try_clone()? })).collect()
    }

    /// Starts the tasks that maintain the state that all workers share. Only the first thread does this.
    fn look_after_origins(&mut self) {
        self.looking_after.abort_all();
        if !self.is_first {
            return;
        }
        let Worker { origins, shared, cache, .. } = &*self.worker;
        self.looking_after.spawn(uplink::probe(Arc::clone(origins)));
        self.looking_after.spawn(keep_missing(Arc::clone(&shared.missing)));
        self.looking_after.spawn(keep_pins(Arc::clone(cache)));
        self.looking_after.spawn(governor::keep_within(Arc::clone(shared)));
        self.looking_after.spawn(keep_purges(Arc::clone(&cache.shared.purges)));
        if let Some(link) = &shared.fleet {
            fleet::follow_all(link, &shared.config.fleet, &cache.shared.purges, &mut self.looking_after);
        }
        if let Some(siblings) = &shared.siblings {
            siblings::look_after(siblings, origins, &mut self.looking_after);
        }
        let parents = origins.shared.parents.iter().map(|parents| Arc::clone(&parents.group));
        for group in shared.routes.groups().into_iter().chain(parents) {
            self.looking_after.spawn(checks::check_all(group, Arc::clone(origins)));
        }
    }

    /// Closes all listeners. Returns the worker, which open connections still use.
    async fn close(mut self) -> Arc<Worker> {
        for door in self.open {
            door.stop_accepting();
            for accepting in door.accepting {
                // The task was aborted, so an error is expected.
                let _ = accepting.await;
            }
        }
        self.looking_after.shutdown().await;
        self.worker
    }
}

fn nonblocking(listener: StdListener) -> io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Accepts connections on a listener that was opened while the worker runs, until the listener must close.
fn open_listener(accepting: &mut JoinSet<()>, thread: &Arc<WorkerThread>, opened: NewListener) {
    let NewListener { socket, door, mut open } = opened;
    let thread = Arc::clone(thread);
    match nonblocking(socket) {
        Ok(listener) => drop(accepting.spawn(async move {
            tokio::select! {
                () = accept(thread, listener, door) => {}
                // No value is ever sent. The channel ends when the session is dropped.
                _ = open.changed() => {}
            }
        })),
        Err(error) => tracing::error!(%error, "a listener cannot be used"),
    }
}

/// Serves a connection through the control socket.
fn open_operator(
    accepting: &mut JoinSet<()>,
    thread: &Arc<WorkerThread>,
    stream: std::os::unix::net::UnixStream,
    pages: admin::AdminPages,
) {
    let thread = Arc::clone(thread);
    match stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream)) {
        Ok(stream) => drop(accepting.spawn(async move { admin::serve_operator(thread, stream, pages).await })),
        Err(error) => tracing::error!(%error, "an operator's connection cannot be used"),
    }
}

/// Serves the connections inside intercepted tunnels, as they arrive.
async fn serve_inside(thread: Arc<WorkerThread>, mut arriving: UnboundedReceiver<TunneledConnection>) {
    while let Some(inside) = arriving.recv().await {
        let Some(worker) = thread.latest() else { return };
        tokio::spawn(connection::serve_inside(worker, inside));
    }
}

/// Accepts connections on a listener and serves them, until aborted.
async fn accept(thread: Arc<WorkerThread>, listener: TcpListener, door: Arc<ListenerAccess>) {
    // Tokio would interrupt a task after 128 connections. On an overloaded thread the next turn comes late, so the
    // kernel's queue would overflow and make clients wait for seconds until they try to connect again.
    tokio::task::unconstrained(accept_in_turns(thread, listener, door)).await;
}

async fn accept_in_turns(thread: Arc<WorkerThread>, listener: TcpListener, door: Arc<ListenerAccess>) {
    for number in 1_u64.. {
        let accepted = listener.accept().await;
        if number.is_multiple_of(ACCEPTED_PER_TURN) {
            tokio::task::yield_now().await;
        }
        let Some(worker) = thread.latest() else { return };
        match accepted {
            Ok((socket, peer)) => {
                let mut presence = ConnectionPresence::of(&worker);
                let config = &worker.shared.config;
                let client = (!brings_others(&door.listener, config, peer.ip())).then(|| peer.ip());
                if let Some(shortage) = presence.shortage(&config.limits, client) {
                    if shortage == Shortage::ClientConnections || !thread.watches.close_stillest() {
                        worker.metrics.refused[shortage as usize].add(1);
                        if !door.listener.tls {
                            shed(socket, HTTP1_REFUSAL);
                        }
                        continue;
                    }
                    // Gives the connection that was closed in favour of this one a chance to end first.
                    tokio::task::yield_now().await;
                }
                serve(&worker, presence, (socket, PeerAddress::Accepted(peer)), Arc::clone(&door));
            }
            Err(error) => {
                // The process has no descriptors or memory left, so trying again at once would fail too.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Returns whether connections from `peer` may carry the requests of several clients, because `peer` is a proxy or a
/// node of the fleet.
fn brings_others(listener: &Listener, config: &ProxyConfig, peer: IpAddr) -> bool {
    let is_among = |networks: &[IpNet]| is_within(networks, peer.to_canonical());
    listener.for_nodes || is_among(&listener.proxied_by) || is_among(&config.fleet.trusted_proxies)
}

/// Starts a task that serves a connection.
fn serve(
    worker: &Arc<Worker>,
    presence: ConnectionPresence,
    (socket, peer): (TcpStream, PeerAddress),
    door: Arc<ListenerAccess>,
) {
    // Sends responses without delay. A socket that refuses the option still works.
    let _ = socket.set_nodelay(true);
    worker.metrics.connections.add(1);
    let serving = connection::serve(Arc::clone(worker), socket, peer, door);
    tokio::spawn(async move {
        serving.await;
        drop(presence);
    });
}

async fn tick(thread: Arc<WorkerThread>) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        thread.watches.advance();
        larder_device::release_unused_buffers();
        if thread.watches.tick().is_multiple_of(POPULAR_TICKS) {
            thread.metrics.popular.turn();
        }
        for worker in thread.all() {
            worker.origins.pool.sweep();
            worker.origins.shared.rooms.sweep();
            worker.flush_log();
        }
    }
}

/// Saves the list of missing resources at intervals.
async fn keep_missing(missing: Arc<MissingList>) {
    let mut interval = tokio::time::interval(KEEP_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let missing = Arc::clone(&missing);
        // `save` logs its own errors. Here, only a panic could be reported.
        let _ = tokio::task::spawn_blocking(move || missing.save()).await;
    }
}

/// Retries at intervals to record purges whose recording failed.
async fn keep_purges(purges: Arc<Purges>) {
    let mut interval = tokio::time::interval(KEEP_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        if purges.are_unsaved() {
            let purges = Arc::clone(&purges);
            if let Ok(Err(error)) = tokio::task::spawn_blocking(move || purges.save()).await {
                tracing::warn!(%error, "purges are not recorded: purged responses may reappear after a crash");
            }
        }
    }
}

/// Syncs the file with the record of pins at intervals. Rewrites the file at the start and when it has grown.
async fn keep_pins(cache: Arc<Cache>) {
    let Some(store) = cache.shared.store.clone() else { return };
    store.ready().await;
    // Dropped when this task is aborted, which makes the blocking work stop too.
    let alive = Arc::new(());
    let mut interval = tokio::time::interval(KEEP_INTERVAL);
    let mut is_tidy = false;
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        if cache.shared.pins.patterns().is_empty() {
            continue;
        }
        let owner = Arc::clone(&cache);
        let store = store.clone();
        let alive = Arc::downgrade(&alive);
        let keep = move || {
            let has_grown = owner.shared.pins.sync();
            if has_grown || !is_tidy {
                owner.shared.pins.tidy(&store, &owner.http.targets, &alive);
            }
        };
        // The work logs its own errors. Here, only a panic could be reported.
        is_tidy = tokio::task::spawn_blocking(keep).await.is_ok();
    }
}

/// Lets connections finish their exchanges, and waits for responses that are still being stored.
///
/// Ends after the time limits in `told`, or when `stop` orders to cut everything off.
async fn drain(thread: &WorkerThread, told: StopOrder, mut stop: watch::Receiver<Option<StopOrder>>) {
    let cut_short = stop.wait_for(|told| told.is_none_or(|told| told.grace.is_zero()));
    let draining = async {
        if !told.respite.is_zero() {
            thread.watches.give_all(WatchOrder::Leave);
            // Set by a task that runs after those that the order woke, so that each of them has seen the order.
            let metrics = Arc::clone(&thread.metrics);
            let noted = tokio::spawn(async move { metrics.has_left.add(1) });
            let _ = noted.await;
            let _ = tokio::time::timeout(told.respite, emptied(thread)).await;
        }
        thread.watches.give_all(WatchOrder::Drain);
        tokio::time::timeout(told.grace, emptied(thread)).await.is_ok()
    };
    let is_emptied = tokio::select! {
        is_emptied = draining => is_emptied,
        _ = cut_short => false,
    };
    if !is_emptied {
        let open = thread.metrics.connections_open.value();
        tracing::info!(open, "closing connections that did not finish in time");
    }
}

/// Waits until no connection is open and no response is still being stored.
async fn emptied(thread: &WorkerThread) {
    thread.unfinished.all_ended(|| thread.metrics.connections_open.value() > 0).await;
}

/// Interval at which state is saved, if it has changed.
const KEEP_INTERVAL: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_secs(1);
/// Length of one period of the popularity counts, in seconds. Counts cover the current period and the one before it.
const POPULAR_TICKS: u32 = 30 * 60;
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Maximum number of connections that a listener's task accepts before other tasks run.
const ACCEPTED_PER_TURN: u64 = 512;
