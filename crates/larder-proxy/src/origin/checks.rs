//! Health checks of a group's members: requests a path from each of them at intervals.
//!
//! Owns: the requests. `group` decides which members are excluded. Cost: one request for each member, interval and
//! worker.

use std::{sync::Arc, time::Duration};

use http::{HeaderValue, Request, header::HOST};

use crate::origin::{
    group::OriginGroup,
    origins::OriginRouter,
    pool::{ReplayableRequest, RetryRule},
    request_body::RequestBody,
    target::Origin,
};

/// Checks every origin of a group at intervals, for as long as the worker runs.
pub(crate) async fn check_all(group: Arc<OriginGroup>, origins: Arc<OriginRouter>) {
    let Some((path, pause)) = group.check() else { return };
    let mut interval = tokio::time::interval(pause);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        for (place, origin) in group.origins().enumerate() {
            group.note_check(place, is_well(&origins, origin, &path).await);
        }
    }
}

/// Returns whether an origin answers a request for this path without an error.
pub(crate) async fn is_well(origins: &Arc<OriginRouter>, origin: &Origin, path: &str) -> bool {
    let (Ok(target), Ok(host)) = (path.parse::<http::Uri>(), HeaderValue::try_from(origin.to_string())) else {
        return false;
    };
    let make = || {
        let mut request = Request::new(RequestBody::none());
        *request.uri_mut() = target.clone();
        request.headers_mut().insert(HOST, host.clone());
        request
    };
    let outgoing = ReplayableRequest { origin: origin.clone(), choice: None, key: None, repeat: RetryRule::Safe, make };
    let asking = tokio::time::timeout(CHECK_PATIENCE, outgoing.send(origins));
    // The body is not needed. Dropping it closes the connection.
    matches!(asking.await, Ok(Ok((response, _))) if response.status().as_u16() < 400)
}

/// Longest time that an origin may take to answer a check.
const CHECK_PATIENCE: Duration = Duration::from_secs(5);
