//! Whether a client may read what others were given for their credentials, where a rule has its origin asked.
//!
//! Owns: the question. Does not: answer the request (see `serve`). Invariant: nobody is given what answered another's credentials, nor
//! reads along where somebody else's are used, before the origin has answered a HEAD of the same URL with this client's own.
//! Cost: a request for each time.

use std::sync::Arc;

use http::Method;

use crate::{
    asked::{Asked, Edits},
    cache::lookup::Found,
    errors::Failure,
    origin::pool::{Outgoing, Repeat},
    request::{route::Route, serve::check_may_ask},
    worker::Worker,
};

/// Whether the origin is asked about the client before a request goes its way: unless it gets what was given to somebody without
/// credentials, or the origin's own answer to it alone.
pub(crate) fn is_asked_about(route: &Route, found: Option<&Found>) -> bool {
    match route {
        Route::Stored { .. } | Route::Meanwhile { .. } => {
            found.is_none_or(|found| found.entry.head.freshness().checks_authorization)
        }
        Route::Fly { .. } | Route::PassHead { .. } => true,
        Route::Pass { stands_in, .. } => *stands_in,
        Route::Refuse | Route::Offline => false,
    }
}

/// Whether what is stored may stand in for an origin that cannot be asked about the client: it is everybody's.
pub(crate) fn may_stand_in(route: &Route, found: &Found) -> bool {
    let stands_in = match route {
        Route::Fly { stands_in, .. } | Route::PassHead { stands_in, .. } | Route::Pass { stands_in, .. } => *stands_in,
        Route::Stored { .. } | Route::Meanwhile { .. } | Route::Refuse | Route::Offline => false,
    };
    stands_in && !found.entry.head.freshness().checks_authorization
}

/// Asks the origin whether a client may read what it asks for.
///
/// # Errors
/// The origin cannot be asked.
pub(crate) async fn may_read(worker: &Arc<Worker>, asked: &Arc<Asked>) -> Result<bool, Failure> {
    check_may_ask(worker, asked)?;
    let edits = Edits { whole: true, ..Edits::default() };
    let outgoing = Outgoing {
        origin: asked.origin.clone(),
        choice: asked.choice.clone(),
        repeat: Repeat::Safe,
        make: || {
            let mut request = asked.outgoing(&worker.shared.marks, &edits);
            *request.method_mut() = Method::HEAD;
            request
        },
    };
    let (head, _) = worker.origins.ask(outgoing).await?;
    Ok(head.status.is_success() || head.status.is_redirection())
}
