//! The origins that request a client certificate. Only the client has its certificate, so connections to these origins
//! are tunneled.
//!
//! Owns: the table of these origins. Invariant: it is bounded; when it is full, the oldest entry is dropped.

use larder_device::IgnorePoison;
use std::{
    cell::Cell,
    collections::{HashSet, VecDeque},
    future::Future,
    pin::pin,
    sync::{Arc, RwLock},
};

use rustls::{SignatureScheme, client::ResolvesClientCert, sign::CertifiedKey};

use crate::ground::target::Origin;

/// The origins that requested a client certificate.
#[derive(Debug, Default)]
pub(crate) struct CertificateAskers(RwLock<(HashSet<Origin>, VecDeque<Origin>)>);

impl CertificateAskers {
    /// Returns whether an origin requested a client certificate in a TLS handshake.
    pub(crate) fn contain(&self, origin: &Origin) -> bool {
        let table = self.0.read().ignore_poison();
        !table.0.is_empty() && table.0.contains(&identity(origin))
    }

    pub(crate) fn insert(&self, origin: &Origin) {
        let origin = identity(origin);
        let mut table = self.0.write().ignore_poison();
        let (known, order) = &mut *table;
        if !known.insert(origin.clone()) {
            return;
        }
        tracing::info!(%origin, "an origin requests a client certificate: Larder no longer decrypts tunnels to it");
        order.push_back(origin);
        if order.len() > ORIGIN_COUNT_MAX {
            order.pop_front().map(|oldest| known.remove(&oldest));
        }
        assert!(known.len() == order.len() && order.len() <= ORIGIN_COUNT_MAX, "what is remembered is bounded");
    }
}

/// Returns an origin reduced to the facts that matter for client certificates.
fn identity(origin: &Origin) -> Origin {
    Origin { https: true, prior_http2: false, trusted: false, ..origin.clone() }
}

/// Sends no certificate to any origin, but records that the origin requested one.
#[derive(Debug)]
pub(super) struct CertificateNoter;

impl ResolvesClientCert for CertificateNoter {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        ASKED.set(true);
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// Performs a handshake, and returns its result and whether the origin requested a client certificate.
///
/// All handshakes share one [`CertificateNoter`], because TLS sessions can be resumed only within one configuration. So
/// a request that is recorded while this handshake is polled belongs to this handshake.
pub(super) async fn note<T>(handshake: impl Future<Output = T>) -> (T, bool) {
    let mut handshake = pin!(handshake);
    let mut asked = false;
    let done = std::future::poll_fn(|context| {
        ASKED.set(false);
        let polled = handshake.as_mut().poll(context);
        asked |= ASKED.get();
        polled
    });
    (done.await, asked)
}

thread_local! {
    static ASKED: Cell<bool> = const { Cell::new(false) };
}

/// Maximum number of origins in the table.
const ORIGIN_COUNT_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_bounded_and_keeps_the_last() {
        let askers = CertificateAskers::default();
        let origin = |number: usize| Origin::of_client(&format!("{number}.example"), 443);
        (0..=ORIGIN_COUNT_MAX).for_each(|number| askers.insert(&origin(number)));
        assert!(!askers.contain(&origin(0)) && askers.contain(&origin(1)) && askers.contain(&origin(ORIGIN_COUNT_MAX)));
        assert!(!askers.contain(&Origin::of_client("1.example", 8443)));
    }
}
