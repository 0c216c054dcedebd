//! Polls the io_uring ring by which a worker's thread reads from the store.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd, RawFd},
    task::Poll,
};

use larder_device::ThreadDriver;
use tokio::io::{Interest, unix::AsyncFd};

/// Registers a thread's io_uring ring with the runtime of the thread.
///
/// # Errors
/// The runtime cannot watch the ring's descriptor.
#[expect(deprecated, reason = "its successor is unsafe to call; the descriptor lives as long as the driver it is in")]
pub(super) fn watch(driver: ThreadDriver) -> io::Result<AsyncFd<RingDescriptor>> {
    AsyncFd::with_interest(RingDescriptor(driver), Interest::READABLE)
}

/// Submits the queued operations of this thread's io_uring ring and delivers the completed ones, until the worker
/// stops.
pub(super) async fn drive(mut descriptor: AsyncFd<RingDescriptor>) {
    std::future::poll_fn(|context| {
        loop {
            descriptor.get_mut().0.turn(context.waker());
            match descriptor.poll_read_ready(context) {
                // The descriptor is edge-triggered: only the edge is consumed, and the counter is never read.
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

/// The ring's event descriptor, in the form that the runtime can watch.
pub(super) struct RingDescriptor(ThreadDriver);

impl AsRawFd for RingDescriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}
