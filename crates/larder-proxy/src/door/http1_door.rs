//! A client's connection of HTTP/1.1: the orders that it gets, and the answers to its requests.
//!
//! Owns: when the connection drains, closes, or moves to the process that replaces this one.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use larder_wire::{HeadLimits, WireFault};

use crate::{
    door::{
        connection::{count_unmovable, hand_over},
        http1::{DoorConnection, Http1Door},
    },
    figures::metrics::CountGuard,
    ground::{
        received_body::IncomingBody,
        watch::{ConnectionPhase, WatchOrder},
    },
    road::{
        client::{
            answer::ClientAnswer,
            interim::InterimQueue,
            peer::Client,
            socket::{ClientSocket, RewoundStream},
        },
        steps,
    },
};

/// The task of a client's connection.
pub(super) struct Http1Task {
    connection: DoorConnection<Arc<Client>>,
    client: Arc<Client>,
    /// Whether the connection was accepted after the handover to the next process began. It then closes after one
    /// response.
    is_fresh: bool,
    is_started: bool,
    /// Counts the connection as one that the next process cannot continue. `None` while the next process can continue
    /// it.
    unmovable: Option<CountGuard>,
}

impl Http1Task {
    /// Creates the task of a connection. `first` are bytes that were already read from the socket.
    pub(super) fn new(
        client: Arc<Client>,
        (socket, first): (ClientSocket, Bytes),
        unmovable: Option<CountGuard>,
        is_fresh: bool,
    ) -> Self {
        let connection = DoorConnection::new(Arc::clone(&client), socket, first);
        Self { connection, client, is_fresh, is_started: false, unmovable }
    }

    /// Answers requests until the connection ends.
    fn turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.connection.poll_requests(context).map(|ended| match ended {
            Ok(None) => {}
            Ok(Some(socket)) => {
                let client = &self.client;
                if let Some(socket) = socket.into_plain() {
                    hand_over(&client.worker, client.listener, Some(client.peer), socket);
                }
            }
            Err(error) => {
                tracing::debug!(%error, peer = %self.client.peer, "a client's connection ended with an error")
            }
        })
    }

    /// Prepares to hand the connection over to the next process after the current response. Ready if the connection can
    /// close at once.
    fn leave(&mut self, order: WatchOrder) -> Poll<()> {
        if self.connection.is_answering() {
            // Pipelined requests are lost, as whenever a connection closes. Clients send them again.
            if self.connection.has_pipelined() {
                self.connection.close_after_response();
            }
        } else if order == WatchOrder::Drain {
            // The client had time to send the remainder of the head. A request that began now could be cut off after it
            // took effect.
            return Poll::Ready(());
        } else {
            self.unmovable.get_or_insert_with(|| count_unmovable(&self.client.worker));
        }
        Poll::Pending
    }
}

impl Drop for Http1Task {
    fn drop(&mut self) {
        // Ends a tunnel that still waits for the socket.
        self.client.switch.close();
    }
}

impl Future for Http1Task {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if !this.is_started {
            this.is_started = true;
            this.client.watched.remember(context);
        }
        let order = this.client.watched.order();
        let goes_over = this.client.is_for_successor() && !this.connection.closes_after_response();
        match order {
            WatchOrder::Expire => return Poll::Ready(()),
            WatchOrder::Run => {}
            WatchOrder::Leave | WatchOrder::Drain if goes_over => {}
            WatchOrder::Leave if this.is_fresh => {}
            WatchOrder::Leave => {
                // Answers a request that has already arrived.
                if this.turn(context).is_ready() {
                    return Poll::Ready(());
                }
                this.connection.close_after_response();
            }
            WatchOrder::Drain => this.connection.close_after_response(),
        }
        if this.turn(context).is_ready() {
            return Poll::Ready(());
        }
        if goes_over { this.leave(order) } else { Poll::Pending }
    }
}

impl Http1Door for Arc<Client> {
    type Socket = ClientSocket;

    fn limits(&self) -> HeadLimits {
        let limits = &self.worker.shared.config.limits;
        HeadLimits { bytes_max: limits.header_bytes_max, field_count_max: limits.header_count_max }
    }

    fn interim(&self) -> &InterimQueue {
        &self.interim
    }

    fn answer(&self, request: Request<IncomingBody>, fault: Option<WireFault>) -> ClientAnswer {
        self.begin();
        steps::answer(self, request, fault)
    }

    fn switch(&self, socket: ClientSocket, first: Bytes) {
        self.switch.give(RewoundStream::new(first, socket));
    }

    fn note_head(&self) {
        if self.watched.phase() == ConnectionPhase::Idle {
            self.watched.enter(ConnectionPhase::Head);
            self.watched.arm(self.worker.shared.config.limits.header);
        }
    }

    fn note_progress(&self) {
        self.watched.arm(self.stall());
    }

    fn note_sending(&self) {
        Client::note_sending(self);
    }

    fn note_half_close(&self) {
        self.watched.arm(HALF_CLOSE_PATIENCE);
    }

    fn note_fatal(&self, fault: WireFault) {
        if let WireFault::Malformed(why) = fault {
            self.fatal_fault.get_or_init(|| why);
        }
    }

    fn is_for_successor(&self) -> bool {
        Client::is_for_successor(self)
    }

    fn count_idle(&self) -> Option<CountGuard> {
        let is_counted = self.inside.is_none();
        is_counted.then(|| CountGuard::begin(&self.worker.metrics, |metrics| &metrics.connections_parked))
    }

    fn count_waiting(&self) -> Option<CountGuard> {
        Some(CountGuard::begin(&self.worker.metrics, |metrics| &metrics.exchanges_parked))
    }
}

/// Maximum pause between two parts of a response to a client that has closed its sending side.
///
/// Most such clients are gone, and must not keep fetches running for long.
const HALF_CLOSE_PATIENCE: Duration = Duration::from_secs(5);
