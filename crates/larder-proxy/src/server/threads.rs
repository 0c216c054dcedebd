//! A worker's thread: a single-threaded runtime, the accept loops, the one-second tick, and the store's ring of this thread.
//!
//! Invariant: a connection lives and dies on the worker that accepted it.

use std::{
    io,
    net::TcpListener as StdListener,
    os::fd::{AsFd as _, AsRawFd, RawFd},
    sync::{Arc, atomic::Ordering::AcqRel},
    task::Poll,
    time::Duration,
};

use larder_store::device::ThreadDriver;
use tokio::{
    io::{Interest, unix::AsyncFd},
    net::{TcpListener, UnixStream},
    sync::{
        mpsc::{self, UnboundedReceiver},
        watch,
    },
    task::JoinSet,
};

use crate::{
    admin,
    client::{
        connection::{self, Door},
        shed::shed,
        socket::Inside,
    },
    metrics::WorkerMetrics,
    missing::Missing,
    origin::uplink,
    server::sessions::Opening,
    shared::Shared,
    watch::Order,
    worker::{Presence, Worker},
};

/// What a worker's thread is started with.
pub(crate) struct Start {
    pub(crate) index: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) metrics: Arc<WorkerMetrics>,
    pub(crate) listeners: Vec<StdListener>,
    /// Listeners that are opened later.
    pub(crate) openings: UnboundedReceiver<Opening>,
    /// The admin listener, for one of the workers.
    pub(crate) admin: Option<StdListener>,
    pub(crate) pages: admin::Pages,
    /// Says for how long to drain once the worker is to stop.
    pub(crate) stop: watch::Receiver<Option<Duration>>,
}

/// Runs a worker until it is told to stop; the body of its thread.
pub(crate) fn run(start: Start) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run_inside(start))
}

async fn run_inside(start: Start) -> io::Result<()> {
    let Start { index, shared, metrics, listeners, openings, admin, pages, mut stop } = start;
    let (inside, arriving) = mpsc::unbounded_channel();
    let worker = Arc::new(Worker::new(index, shared, metrics, inside));
    // As a task of its own: waking the root future costs a system call, waking a task does not.
    let drivers = worker.cache.shared.store.as_ref().map(larder_store::Store::attach_thread);
    for driver in drivers.into_iter().flatten() {
        tokio::spawn(drive(watch_ring(driver)?));
    }
    let mut accepting = Vec::new();
    for (listener, about) in listeners.into_iter().zip(&worker.shared.config.listeners) {
        let door = Arc::new(Door { listener: about.clone(), session: None });
        accepting.push(tokio::spawn(accept(Arc::clone(&worker), nonblocking(listener)?, door)));
    }
    accepting.push(tokio::spawn(open_later(Arc::clone(&worker), openings, pages.clone())));
    accepting.push(tokio::spawn(serve_inside(Arc::clone(&worker), arriving)));
    if let Some(listener) = admin {
        accepting.push(tokio::spawn(admin::serve(Arc::clone(&worker), nonblocking(listener)?, pages)));
    }
    // One worker looks after the origins of all.
    let has_begun = worker.shared.checks_begun.swap(true, AcqRel);
    if !has_begun {
        accepting.push(tokio::spawn(uplink::probe(Arc::clone(&worker.origins))));
        accepting.push(tokio::spawn(keep_missing(Arc::clone(&worker.shared.missing))));
    }
    for group in if has_begun { Vec::new() } else { worker.shared.routes.groups() } {
        accepting.push(tokio::spawn(group.check_all(Arc::clone(&worker.origins))));
    }
    let ticking = tokio::spawn(tick(Arc::clone(&worker)));
    // An error means that the proxy was dropped without shutdown: stop without draining.
    let grace = stop.wait_for(Option::is_some).await.map_or(Duration::ZERO, |grace| grace.unwrap_or_default());
    accepting.iter().for_each(|task| task.abort());
    for task in accepting {
        // Aborted on purpose.
        let _ = task.await;
    }
    drain(&worker, grace, stop).await;
    ticking.abort();
    Ok(())
}

fn nonblocking(listener: StdListener) -> io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Accepts on listeners that are opened while the worker runs, each until it is closed.
async fn open_later(worker: Arc<Worker>, mut openings: UnboundedReceiver<Opening>, pages: admin::Pages) {
    let mut accepting = JoinSet::new();
    while let Some(opening) = openings.recv().await {
        let worker = Arc::clone(&worker);
        match opening {
            Opening::Listener { listener, door, mut open } => match nonblocking(listener) {
                Ok(listener) => drop(accepting.spawn(async move {
                    tokio::select! {
                        () = accept(worker, listener, door) => {}
                        // Nothing is ever sent: it ends when the other end is gone.
                        _ = open.changed() => {}
                    }
                })),
                Err(error) => tracing::error!(%error, "a listener cannot be used"),
            },
            Opening::Operator(stream) => {
                let pages = pages.clone();
                let opened = stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream));
                match opened {
                    Ok(stream) => drop(accepting.spawn(async move {
                        admin::serve_connection(&worker, stream, &pages).await;
                    })),
                    Err(error) => tracing::error!(%error, "a connection of the operator cannot be used"),
                }
            }
        }
        while accepting.try_join_next().is_some() {}
    }
}

/// Serves connections inside tunnels.
async fn serve_inside(worker: Arc<Worker>, mut arriving: UnboundedReceiver<Inside>) {
    while let Some(inside) = arriving.recv().await {
        let worker = Arc::clone(&worker);
        tokio::spawn(async move { connection::serve_inside(&worker, inside).await });
    }
}

/// Accepts on a listener.
async fn accept(worker: Arc<Worker>, listener: TcpListener, door: Arc<Door>) {
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => {
                let limit = worker.shared.config.limits.connection_count_max;
                if worker.shared.connection_count.fetch_add(1, AcqRel) >= limit {
                    worker.shared.connection_count.fetch_sub(1, AcqRel);
                    worker.metrics.connections_refused.add(1);
                    if !door.listener.tls {
                        shed(socket);
                    }
                    continue;
                }
                // Responses are to leave at once; a socket that refuses the option still works.
                let _ = socket.set_nodelay(true);
                worker.metrics.connections.add(1);
                worker.metrics.connections_open.add(1);
                let (presence, door) = (Presence(Arc::clone(&worker)), Arc::clone(&door));
                tokio::spawn(async move {
                    connection::serve(&presence.0, socket, peer, &door).await;
                    drop(presence);
                });
            }
            Err(error) => {
                // Out of descriptors or memory: wait for connections to end instead of spinning.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn tick(worker: Arc<Worker>) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        worker.watches.advance();
        worker.origins.pool.sweep();
        worker.origins.shared.rooms.sweep();
        worker.flush_log();
    }
}

/// Has what is missing written down now and then.
async fn keep_missing(missing: Arc<Missing>) {
    let mut interval = tokio::time::interval(KEEP_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let missing = Arc::clone(&missing);
        // It says itself what goes wrong.
        let _ = tokio::task::spawn_blocking(move || missing.save()).await;
    }
}

/// Lets connections finish what they are at, and commits that outlast them, for as long as `grace`, or until `stop` says
/// that there is no time left.
async fn drain(worker: &Arc<Worker>, grace: Duration, mut stop: watch::Receiver<Option<Duration>>) {
    worker.watches.give_all(Order::Drain);
    let emptied = async {
        while worker.metrics.connections_open.value() > 0 || worker.unfinished.has_late_commits() {
            worker.unfinished.ended().await;
        }
    };
    let cut_short = stop.wait_for(|grace| grace.is_none_or(|grace| grace.is_zero()));
    let is_emptied = tokio::select! {
        emptied = tokio::time::timeout(grace, emptied) => emptied.is_ok(),
        _ = cut_short => false,
    };
    if !is_emptied {
        let open = worker.metrics.connections_open.value();
        tracing::info!(open, "closing connections that did not finish in time");
    }
}

#[expect(deprecated, reason = "its successor is unsafe to call; the descriptor lives as long as the driver it is in")]
fn watch_ring(driver: ThreadDriver) -> io::Result<AsyncFd<RingDescriptor>> {
    AsyncFd::with_interest(RingDescriptor(driver), Interest::READABLE)
}

/// Turns the store's ring of this thread: submits what was queued, delivers what completed.
async fn drive(mut descriptor: AsyncFd<RingDescriptor>) {
    std::future::poll_fn(|context| {
        loop {
            descriptor.get_mut().0.turn(context.waker());
            match descriptor.poll_read_ready(context) {
                // Edge-triggered: the counter is never read, only the edge is taken.
                Poll::Ready(Ok(mut ready)) => ready.clear_ready(),
                Poll::Ready(Err(error)) => {
                    tracing::error!(%error, "the store's ring cannot be polled any more");
                    return Poll::Ready(());
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
}

/// The ring's event descriptor, as the runtime wants it.
struct RingDescriptor(ThreadDriver);

impl AsRawFd for RingDescriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// Time between two looks whether there is something to write down.
const KEEP_INTERVAL: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_secs(1);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
