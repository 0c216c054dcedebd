//! What the connections of one worker share without other workers.
//!
//! Does not: run, see `server::threads`. Cost: nothing is shared between workers on a hit except the memory tier's shard.

use std::sync::{Arc, atomic::Ordering::AcqRel};

use tokio::sync::mpsc::UnboundedSender;

use crate::{
    access_log::{Line, LineBuffer},
    cache::Cache,
    client::socket::Inside,
    flight::{flights::Flights, source::Means},
    metrics::WorkerMetrics,
    origin::origins::Origins,
    shared::Shared,
    unfinished::Unfinished,
    watch::Watches,
};

/// What the connections of one worker share.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) metrics: Arc<WorkerMetrics>,
    pub(crate) watches: Arc<Watches>,
    pub(crate) origins: Arc<Origins>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) flights: Arc<Flights>,
    pub(crate) unfinished: Arc<Unfinished>,
    /// Connections inside tunnels, on their way to be served.
    inside: UnboundedSender<Inside>,
    log_buffer: LineBuffer,
}

impl Worker {
    /// Returns the worker with this number.
    pub(crate) fn new(
        index: usize,
        shared: Arc<Shared>,
        metrics: Arc<WorkerMetrics>,
        inside: UnboundedSender<Inside>,
    ) -> Self {
        let watches = Arc::<Watches>::default();
        let origins = Arc::new(Origins::new(index, &shared.origins, &metrics, &watches));
        let cache = Arc::new(Cache { shared: Arc::clone(&shared.cache), metrics: Arc::clone(&metrics) });
        let unfinished = Arc::<Unfinished>::default();
        let means = Arc::new(Means {
            cache: Arc::clone(&cache),
            origins: Arc::clone(&origins),
            marks: Arc::clone(&shared.marks),
            windows: Arc::clone(&shared.windows),
            rests: Arc::clone(&shared.rests),
        });
        let flights = Arc::new(Flights {
            table: Arc::clone(&shared.flights),
            means,
            unfinished: Arc::clone(&unfinished),
            entry_bytes_max: shared.config.entry_bytes_max,
        });
        let log_buffer = LineBuffer::default();
        Self { shared, metrics, watches, origins, cache, flights, unfinished, inside, log_buffer }
    }

    /// Has a connection inside a tunnel served. Bounded by the connections there may be, which it counts among.
    pub(crate) fn serve_inside(&self, inside: Inside) {
        // A worker that is stopping serves nothing new.
        let _ = self.inside.send(inside);
    }

    /// Writes a line to the access log, if there is one.
    pub(crate) fn write_log_line(&self, line: &Line, sent_bytes: u64, complete: bool) {
        if let Some(log) = &self.shared.access_log {
            let dropped = self.log_buffer.push(log, line, sent_bytes, complete);
            self.metrics.log_lines_dropped.add(dropped);
        }
    }

    /// Hands the lines that have gathered on to the access log.
    pub(crate) fn flush_log(&self) {
        if let Some(log) = &self.shared.access_log {
            self.metrics.log_lines_dropped.add(self.log_buffer.flush(log));
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Among these are the lines of exchanges that stopping cut short.
        if let Some(log) = &self.shared.access_log {
            self.log_buffer.flush_last(log);
        }
    }
}

/// Counts a connection for as long as it, or the tunnel it became, lives.
pub(crate) struct Presence(pub(crate) Arc<Worker>);

impl Presence {
    /// Counts a task that outlives its connection.
    pub(crate) fn of_tunnel(worker: &Arc<Worker>) -> Self {
        worker.shared.connection_count.fetch_add(1, AcqRel);
        worker.metrics.connections_open.add(1);
        Self(Arc::clone(worker))
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.shared.connection_count.fetch_sub(1, AcqRel);
        self.0.metrics.connections_open.take(1);
        self.0.unfinished.note_ended();
    }
}
