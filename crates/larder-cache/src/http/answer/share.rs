//! Joins a request to a flight, or begins one, until one of them answers it.
//!
//! Owns: the reaction of a request to a flight that it cannot use. `reading` reads the flights. Invariant: readers that
//! cannot use a shared response start their own fetches at once, not one after the other.

use std::sync::Arc;

use http::header;
use larder_device::pinned;

use super::{
    plan::FetchPlan,
    query::{Answer, CacheQuery},
    reading::{FlightReading, UnusedReason},
};
use crate::http::{
    fetch::{reader::FlightReader, shared::Flight, stage::FetchStage, table::JoinedFlight, task::Fetch},
    fetcher::{ClientRequest as _, FetchEvent, Fetcher},
    groups::PageAsker,
    lookup,
};

impl<F: Fetcher> CacheQuery<'_, F> {
    /// Answers the request by a fetch that other requests can share (a flight), as planned.
    ///
    /// # Errors
    /// The origin is unreachable, and no stale response may be served.
    #[doc(hidden)] // for larder-proxy
    pub async fn fetch(self, mut sharing: Box<FetchPlan<F>>) -> Result<Answer<F>, F::Failure> {
        let asked = self.asked;
        let told =
            sharing.before.as_ref().is_none_or(|found| found.entry.head.selecting().cover_what_is_told(asked.fields()));
        // A request with more selecting fields than the stored request had may get a response made for it alone, so no
        // other client may share it.
        let mut alone = !told
        || self.cache().shared.uncollapsible.contains(&sharing.primary)
        // A flight with other credentials could bring a response that this client may not read.
        || (asked.checks_access() && sharing.permission.is_none());
        // Each outcome below changes the plan, so repeating makes progress. The limit stops an origin whose `Vary`
        // changes with every response.
        for _ in 0..ATTEMPT_COUNT_MAX {
            let mut reader = self.board(&sharing, alone);
            let ended_before = !reader.is_first() && reader.flight().is_complete();
            let stage = reader.stage().await;
            let reading = FlightReading { by: self, sharing: &sharing };
            // Boxed, as the lookup below, because this request has waited for the origin before.
            match pinned(|| reading.take(reader, stage, ended_before)).await {
                Ok(served) => return served,
                Err(UnusedReason::OtherVariant(marker)) => {
                    // A newer marker means that the response to confirm is not this request's variant.
                    sharing.before = None;
                    // Another waiting request may have fetched this variant meanwhile.
                    let since = self.cache().shared.hot.moment();
                    let looking = lookup::find_variant(self.cache(), &sharing.primary, &marker, asked.fields(), since);
                    if let Some(found) = Box::pin(looking).await
                        && (FlightReading { by: self, sharing: &sharing })
                            .may_read(&found.entry.head, Some(found.entry.body_len()))
                        && let Some(served) = Box::pin(self.if_fresh(&found)).await
                    {
                        return served;
                    }
                    sharing.marker = Some(marker);
                }
                Err(UnusedReason::NotForUs) => alone = true,
                Err(UnusedReason::TooOld) => sharing.is_reload = true,
                Err(UnusedReason::Again) => {}
                Err(UnusedReason::Incomplete) => (sharing.before, sharing.may_serve_on_error) = (None, false),
            }
        }
        self.pass(sharing.forward).await
    }

    /// Validates a stored response in the background while it is being served (RFC 5861 3). Does nothing if a
    /// validation of it is in progress.
    ///
    /// The outcome updates or removes the stored response, as in any other fetch.
    pub(super) fn refresh(self, sharing: &FetchPlan<F>) {
        let reader = self.board(sharing, false);
        if reader.is_first() {
            // A body that nobody reads would not be finished.
            tokio::spawn(keep(reader));
        }
    }
}

async fn keep<F: Fetcher>(mut reader: FlightReader<F>) {
    if let FetchStage::Open(open) = reader.stage().await {
        open.body.keep();
    }
}

impl<F: Fetcher> CacheQuery<'_, F> {
    /// Joins the flight (the shared fetch) for this request, or begins one.
    fn board(self, sharing: &FetchPlan<F>, alone: bool) -> FlightReader<F> {
        let Self { http, asked } = self;
        let is_reload = sharing.is_reload;
        let key = self.flight_key(sharing);
        let cache = self.cache();
        let shared = &cache.shared;
        let begin = || Flight::new(shared.begin(&sharing.primary), is_reload);
        let own = || JoinedFlight {
            reader: FlightReader::first(Arc::new(begin())),
            is_first: true,
            after: None,
            shard: None,
        };
        // A flight that began before an invalidation may bring the old response, so later requests do not join it.
        let is_current = |flight: &Flight<F>| shared.is_current(&flight.work, || flight.head());
        // A flight outside the table cannot be joined. Its response is for this client only.
        let joined = if alone { own() } else { http.flights.join(&key, is_reload, is_current, begin) };
        let JoinedFlight { reader, is_first, after, shard } = joined;
        if is_first {
            let asker = PageAsker { client: asked.client(), now: self.now() };
            let may_refer = asked.names().may_have(&header::REFERER);
            let group = if may_refer { cache.groups.of_referred(asker, asked.fields()) } else { 0 };
            let fetch = Fetch {
                http: Arc::clone(http),
                asked: Arc::clone(asked),
                flight: Arc::clone(reader.flight()),
                primary: Arc::clone(&sharing.primary),
                shard,
                before: sharing.before.clone(),
                stale_if_error: sharing.may_serve_on_error,
                marker: sharing.marker.clone(),
                group,
                after,
                absent_since: sharing.absent_since,
            };
            // Boxed, because the runtime moves a spawned future four times, and this one takes kilobytes.
            tokio::spawn(pinned(move || fetch.run()));
        } else {
            http.fetcher.note(FetchEvent::Joined);
        }
        reader
    }

    /// Returns the key under which requests share a flight (a fetch). It is the key of the stored response, or of the
    /// variant that the marker suggests, or of the resource.
    fn flight_key(self, sharing: &FetchPlan<F>) -> Arc<[u8]> {
        if let Some(found) = &sharing.before {
            return Arc::clone(&found.key);
        }
        let settings = &self.cache().http;
        let variant = sharing.marker.as_ref().and_then(|marker| {
            let rule = marker.rules.rules().first()?;
            marker.variant_key(&sharing.primary, rule, self.asked.fields(), settings)
        });
        variant.map_or_else(|| Arc::clone(&sharing.primary), Arc::from)
    }
}

/// Maximum number of flights (shared fetches) that a request tries before it goes to the origin by itself: one for the
/// resource, one for its variant, and one of its own.
const ATTEMPT_COUNT_MAX: usize = 3;
