//! Enforces rate limits: decides how many bytes a client may receive, and when.
//!
//! Owns: the token buckets of the rate limits, one for each client or group of clients that shares a rate. Bodies and
//! tunnels take bytes from them before they send. Invariant: bytes that were sent are deducted from every bucket
//! concerned. Cost: nothing without rate limits. Otherwise one lock and lookup per rule and piece, and 64 bytes for
//! each recently served client.

use larder_device::IgnorePoison;
use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv6Addr},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
    time::Instant,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep_until},
};

use crate::ground::{
    config::{RateLimit, RateSharing, normal_host},
    pace::{Bucket, Pace},
};

/// The configured rate limits, each with its token buckets.
#[derive(Default)]
pub(crate) struct DelayTable {
    rows: Vec<Arc<DelayRow>>,
}

struct DelayRow {
    limit: RateLimit,
    pace: Pace,
    buckets: Mutex<DelayBuckets>,
}

#[derive(Default)]
struct DelayBuckets {
    by_share: HashMap<RateShare, Bucket>,
    /// Number of buckets above which full ones are removed. A full bucket permits the same as a new one.
    sweep_at: usize,
}

/// The client, or group of clients, that shares one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RateShare {
    All,
    /// The clients of one configured network, by its index.
    Network(usize),
    Client(IpAddr),
}

/// Limits the rate of one response or tunnel.
pub(crate) struct Pacer {
    turns: Vec<(Arc<DelayRow>, RateShare)>,
    piece_bytes_max: usize,
    /// Number of bytes that were taken from the buckets and not sent yet. They may be sent once `timer` has elapsed.
    granted: usize,
    timer: Option<Pin<Box<Sleep>>>,
}

/// A stream whose writes are limited in rate.
pub(crate) struct PacedStream<S> {
    stream: S,
    pacer: Option<Pacer>,
}

impl DelayTable {
    pub(crate) fn new(limits: &[RateLimit]) -> Self {
        let row = |limit: &RateLimit| {
            let pace = Pace::new(limit.rate, limit.burst_bytes.unwrap_or(limit.rate.get()));
            Arc::new(DelayRow { limit: limit.clone(), pace, buckets: Mutex::default() })
        };
        Self { rows: limits.iter().map(row).collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the limiter for a client's requests to a host. `None` if no rate limit applies.
    pub(crate) fn pacer(&self, client: IpAddr, host: &str) -> Option<Pacer> {
        let client = client.to_canonical();
        let turns: Vec<_> = self
            .of_host(host)
            .filter_map(|row| share_of(&row.limit, client).map(|share| (Arc::clone(row), share)))
            .collect();
        let rate = turns.iter().map(|(row, _)| row.limit.rate.get()).min()?;
        let piece_bytes_max = usize::try_from(rate / PIECES_A_SECOND).unwrap_or(usize::MAX);
        let piece_bytes_max = piece_bytes_max.clamp(PIECE_BYTES.0, PIECE_BYTES.1);
        Some(Pacer { turns, piece_bytes_max, granted: 0, timer: None })
    }

    /// Returns the rate limits that apply to a host.
    pub(crate) fn for_host(&self, host: &str) -> impl Iterator<Item = &RateLimit> {
        self.of_host(host).map(|row| &row.limit)
    }

    fn of_host(&self, host: &str) -> impl Iterator<Item = &Arc<DelayRow>> {
        let host = normal_host(host);
        self.rows.iter().filter(move |row| row.limit.is_for_host(&host))
    }
}

/// Returns the bucket from which a client's bytes are deducted. `None` if the rate limit does not apply to the client.
fn share_of(limit: &RateLimit, client: IpAddr) -> Option<RateShare> {
    let network = limit.clients.iter().position(|network| network.contains(&client));
    if network.is_none() && !limit.clients.is_empty() {
        return None;
    }
    Some(match (limit.shared, network) {
        (RateSharing::Together, _) => RateShare::All,
        (RateSharing::Network, network) => RateShare::Network(network?),
        (RateSharing::Client, _) => RateShare::Client(match client {
            // A client with one address of a /64 network usually can use all its addresses.
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
            address @ IpAddr::V4(_) => address,
        }),
    })
}

impl DelayRow {
    /// Takes bytes from the bucket of `share`. Returns the time at which they may be sent.
    fn take(&self, share: RateShare, now: Instant, bytes: usize) -> Instant {
        let mut buckets = self.buckets.lock().ignore_poison();
        let turn = buckets.by_share.entry(share).or_default().take(&self.pace, now, bytes as u64);
        if buckets.by_share.len() > buckets.sweep_at.max(SWEEP_MIN) {
            buckets.by_share.retain(|_, bucket| !bucket.is_full(now));
            buckets.sweep_at = 2 * buckets.by_share.len();
        }
        turn
    }
}

impl Pacer {
    /// Waits until at least one of `wanted` bytes may be sent. Returns how many may be sent.
    pub(crate) fn poll_take(&mut self, wanted: usize, context: &mut Context<'_>) -> Poll<usize> {
        debug_assert!(wanted > 0, "nothing needs no leave");
        if self.granted == 0 {
            let now = Instant::now();
            let bytes = wanted.min(self.piece_bytes_max);
            let turn = self.turns.iter().map(|(row, share)| row.take(*share, now, bytes)).max();
            self.granted = bytes;
            self.timer = turn.filter(|turn| *turn > now).map(|turn| Box::pin(sleep_until(turn.into())));
        }
        if let Some(timer) = &mut self.timer {
            ready!(timer.as_mut().poll(context));
            self.timer = None;
        }
        let bytes = self.granted.min(wanted);
        self.granted -= bytes;
        Poll::Ready(bytes)
    }

    /// Gives back bytes that were permitted but not sent. The next write may send them.
    fn put_back(&mut self, bytes: usize) {
        self.granted += bytes;
    }
}

impl<S> PacedStream<S> {
    pub(crate) fn new(stream: S, pacer: Option<Pacer>) -> Self {
        Self { stream, pacer }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PacedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PacedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Self { stream, pacer } = &mut *self;
        let Some(pacer) = pacer.as_mut().filter(|_| !bytes.is_empty()) else {
            return Pin::new(stream).poll_write(context, bytes);
        };
        let leave = ready!(pacer.poll_take(bytes.len(), context));
        let written = Pin::new(stream).poll_write(context, &bytes[..leave]);
        let went = match written {
            Poll::Ready(Ok(went)) => went,
            Poll::Ready(Err(_)) | Poll::Pending => 0,
        };
        pacer.put_back(leave - went);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Number of pieces per second, at the lowest of the rates that apply. Few enough that timers cost little, many enough
/// for a smooth download.
const PIECES_A_SECOND: u64 = 16;
/// Minimum and maximum length of a piece, in bytes.
const PIECE_BYTES: (usize, usize) = (256, 64 << 10);
/// Number of buckets up to which no bucket is removed.
const SWEEP_MIN: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU64;

    fn delay(clients: &[&str], shared: RateSharing) -> RateLimit {
        RateLimit {
            name: "d".to_owned(),
            clients: clients.iter().map(|network| network.parse().unwrap()).collect(),
            hosts: vec!["*.example".parse().unwrap()],
            rate: NonZeroU64::new(10_000).unwrap(),
            burst_bytes: None,
            shared,
        }
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn clients_and_hosts_that_no_delay_names_are_not_paced() {
        let delays = DelayTable::new(&[delay(&["10.0.0.0/8"], RateSharing::Together)]);
        assert!(delays.pacer(address("10.1.2.3"), "A.example.").is_some());
        assert!(delays.pacer(address("::ffff:10.1.2.3"), "a.example").is_some());
        assert!(delays.pacer(address("11.1.2.3"), "a.example").is_none());
        assert!(delays.pacer(address("10.1.2.3"), "example").is_none());
    }

    #[test]
    fn those_share_a_rate_who_are_said_to() {
        let share =
            |shared, client| share_of(&delay(&["10.1.0.0/16", "10.2.0.0/16", "fd00::/8"], shared), address(client));
        assert_eq!(share(RateSharing::Together, "10.1.0.1"), share(RateSharing::Together, "10.2.0.1"));
        assert_ne!(share(RateSharing::Network, "10.1.0.1"), share(RateSharing::Network, "10.2.0.1"));
        assert_eq!(share(RateSharing::Network, "10.1.0.1"), share(RateSharing::Network, "10.1.0.2"));
        assert_ne!(share(RateSharing::Client, "10.1.0.1"), share(RateSharing::Client, "10.1.0.2"));
        assert_eq!(share(RateSharing::Client, "fd00::1"), share(RateSharing::Client, "fd00::2"));
        assert_ne!(share(RateSharing::Client, "fd00::1"), share(RateSharing::Client, "fd00:0:0:1::1"));
        assert_eq!(share(RateSharing::Client, "10.3.0.1"), None);
    }

    #[test]
    fn buckets_that_are_full_are_forgotten() {
        let delays = DelayTable::new(&[delay(&[], RateSharing::Client)]);
        let row = &delays.rows[0];
        let start = Instant::now();
        for client in 0..u32::try_from(5 * SWEEP_MIN).unwrap() {
            let now = start + std::time::Duration::from_secs(u64::from(client));
            row.take(RateShare::Client(IpAddr::V4(client.into())), now, 100);
        }
        assert!(row.buckets.lock().unwrap().by_share.len() <= SWEEP_MIN + 1);
    }
}
