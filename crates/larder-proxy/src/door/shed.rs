//! Refuses connections beyond the limit with a response, and closes them.
//!
//! Requests are not read. Invariant: at most [`AT_ONCE`] refusals are in progress over all workers, each for at most
//! [`PATIENCE`]. Connections beyond that are closed without a response. Cost: a small task each.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Sends a client the response `refusal` and closes its connection. If too many refusals are in progress, only closes
/// it.
pub(crate) fn shed(mut socket: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, refusal: &'static [u8]) {
    if TELLING.fetch_add(1, Relaxed) >= AT_ONCE {
        TELLING.fetch_sub(1, Relaxed);
        return;
    }
    tokio::spawn(async move {
        let _telling = ShedAnswer;
        let tell = async {
            socket.write_all(refusal).await?;
            socket.shutdown().await?;
            // Reads what the client has sent, because closing with unread bytes would discard the response.
            let mut rest = [0; 1024];
            for _ in 0..READ_COUNT_MAX {
                if socket.read(&mut rest).await? == 0 {
                    break;
                }
            }
            Ok::<_, std::io::Error>(())
        };
        // An error only means that the client has left.
        let _ = tokio::time::timeout(PATIENCE, tell).await;
    });
}

struct ShedAnswer;

impl Drop for ShedAnswer {
    fn drop(&mut self) {
        TELLING.fetch_sub(1, Relaxed);
    }
}

static TELLING: AtomicUsize = AtomicUsize::new(0);

/// The refusal for HTTP/1.1: a 503 that asks to retry after 5 seconds.
pub(crate) const HTTP1_REFUSAL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\nCache-Control: no-store\r\n\
                      Content-Type: text/plain\r\nContent-Length: 35\r\n\r\ntoo many connections, retry in 5 s\n";
/// The refusal for HTTP/2: SETTINGS, and GOAWAY with ENHANCE_YOUR_CALM before the first stream (RFC 9113 6.8).
///
/// GOAWAY tells the client that no request was processed, so it can send all of them again.
pub(crate) const HTTP2_REFUSAL: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0b";
/// Maximum number of refusals in progress. Each uses one of the 100 open files that are reserved for purposes other
/// than connections.
const AT_ONCE: usize = 64;
/// Maximum time to send one refusal.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum number of reads that discard what the client sent.
const READ_COUNT_MAX: usize = 8;
