//! Polls the store's ring of a worker's thread.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd, RawFd},
    task::Poll,
};

use larder_device::ThreadDriver;
use tokio::io::{Interest, unix::AsyncFd};

/// Watches the ring of a thread in its runtime.
///
/// # Errors
/// The runtime cannot watch the descriptor.
#[expect(deprecated, reason = "its successor is unsafe to call; the descriptor lives as long as the driver it is in")]
pub(super) fn watch(driver: ThreadDriver) -> io::Result<AsyncFd<RingDescriptor>> {
    AsyncFd::with_interest(RingDescriptor(driver), Interest::READABLE)
}

/// Drives this thread's ring of the store: submits queued operations and delivers completed ones.
pub(super) async fn drive(mut descriptor: AsyncFd<RingDescriptor>) {
    std::future::poll_fn(|context| {
        loop {
            descriptor.get_mut().0.turn(context.waker());
            match descriptor.poll_read_ready(context) {
                // The descriptor is edge-triggered, so only the edge is consumed and the counter is never read.
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

/// The ring's event descriptor, in the form that the runtime needs.
pub(super) struct RingDescriptor(ThreadDriver);

impl AsRawFd for RingDescriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}
