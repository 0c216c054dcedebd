//! The dashboard: a page that shows `/overview.json` and sends the commands of its buttons.
//!
//! Owns: the page's files, which load nothing from elsewhere, and the list of commands that it may send. Other
//! modules collect the figures and execute purges. Invariants: the page runs only its own script and loads only its own
//! files, whatever the figures contain (Content-Security-Policy). A page of another site cannot send commands: `guard`
//! refuses its requests, and a browser does not let it send the required field.

use http::{HeaderValue, Response, StatusCode, Uri, header, request};

use super::page;
use crate::road::client::response_body::ResponseBody;

/// Returns the dashboard's file that a request names, or `None` if the request names no such file.
pub(super) fn file(request: &request::Parts) -> Option<Response<ResponseBody>> {
    let (kind, text) = match request.uri.path() {
        "/" => ("text/html; charset=utf-8", include_str!("dashboard/dashboard.html")),
        "/dashboard.css" => ("text/css; charset=utf-8", include_str!("dashboard/dashboard.css")),
        "/dashboard.js" => ("text/javascript; charset=utf-8", include_str!("dashboard/dashboard.js")),
        "/queries.js" => ("text/javascript; charset=utf-8", include_str!("dashboard/queries.js")),
        _ => return None,
    };
    let mut response = page(StatusCode::OK, text.into());
    let fields = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ] {
        fields.insert(name, HeaderValue::from_static(value));
    }
    Some(response)
}

/// A command that the dashboard sent, converted to the request that other clients send for it.
pub(super) enum DashboardCommand {
    Purge(request::Parts),
    Explain(request::Parts),
}

/// Converts a POST of the dashboard to the request that other clients send for the same command, or returns the
/// response that refuses it.
///
/// The paths are `/purge` and `/explain`; the field `Operator-Url` has the URL.
pub(super) fn command(mut request: request::Parts) -> Result<DashboardCommand, Box<Response<ResponseBody>>> {
    let refuse = |status, why: &'static str| Err(Box::new(page(status, why.into())));
    if !request.headers.contains_key(OPERATOR) {
        return refuse(StatusCode::FORBIDDEN, "only this proxy's dashboard may send this request\n");
    }
    let command: fn(request::Parts) -> DashboardCommand = match request.uri.path() {
        "/purge" => DashboardCommand::Purge,
        // The fields of the POST describe the browser's request, not the one to explain.
        "/explain" => |mut request| {
            request.headers.clear();
            DashboardCommand::Explain(request)
        },
        _ => return refuse(StatusCode::NOT_FOUND, "the dashboard can POST to /purge and /explain only\n"),
    };
    let url =
        request.headers.get(OPERATOR_URL).and_then(|url| url.to_str().ok()).and_then(|url| url.parse::<Uri>().ok());
    let Some(url) = url.filter(|url| url.authority().is_some() && matches!(url.scheme_str(), Some("http" | "https")))
    else {
        return refuse(StatusCode::BAD_REQUEST, "not a whole URL, such as http://example.com/style.css\n");
    };
    request.uri = url;
    Ok(command(request))
}

/// The Content-Security-Policy: the page may load only its own files and figures, and no other page may show it in a
/// frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const OPERATOR: &str = "larder-operator";
const OPERATOR_URL: &str = "operator-url";
