//! Health checks of a group's members: requests a path from each member at intervals.
//!
//! Owns: the requests. `group` decides which members are excluded. Cost: one request for each member, interval and
//! worker.

use std::{sync::Arc, time::Duration};

use http::{HeaderValue, Request, Response, Uri, header::HOST};

use crate::{
    ground::target::Origin,
    origins::{
        access::OriginRouter,
        group::OriginGroup,
        pool::{ReplayableRequest, RetryRule},
        request_body::RequestBody,
    },
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

/// Returns whether an origin answers a GET of `path` in time and with a status other than an error.
pub(crate) async fn is_well(origins: &Arc<OriginRouter>, origin: &Origin, path: &str) -> bool {
    let Ok(target) = path.parse() else { return false };
    let response = answer(origins, origin, || request(origin, &target)).await;
    response.is_some_and(|response| response.status().as_u16() < 400)
}

/// Creates a health check: a request for the path `target` of an origin.
pub(crate) fn request(origin: &Origin, target: &Uri) -> Request<RequestBody> {
    let mut request = Request::new(RequestBody::none());
    *request.uri_mut() = target.clone();
    let host = HeaderValue::try_from(origin.to_string());
    request.headers_mut().extend(host.ok().map(|host| (HOST, host)));
    request
}

/// Sends a health check, and returns the head of the response, or `None` if none arrives in time.
pub(crate) async fn answer(
    origins: &Arc<OriginRouter>,
    origin: &Origin,
    make: impl FnMut() -> Request<RequestBody> + Send,
) -> Option<Response<()>> {
    let mut outgoing = ReplayableRequest {
        origin: origin.clone(),
        choice: None,
        key: None,
        repeat: RetryRule::Safe,
        client: None,
        make,
    };
    let asking = tokio::time::timeout(CHECK_PATIENCE, outgoing.send(origins));
    // Dropping the body, which is not needed, closes the connection.
    asking.await.ok()?.ok().map(|response| response.map(|_| ()))
}

/// Maximum time that an origin may take to answer a health check.
const CHECK_PATIENCE: Duration = Duration::from_secs(5);
