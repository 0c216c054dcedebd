//! The page that a browser shows when an exchange failed: the cause, and advice for the user.
//!
//! Owns: the text and the style. The cause comes from `errors`. Invariants: all text from a request or an origin is
//! escaped. The page loads no files, runs no scripts, and may not be framed.

use http::{HeaderMap, HeaderValue, Method, header};

use crate::ground::errors::Failure;

/// Returns whether the client prefers an HTML page to a line of text, as browsers do when they navigate.
pub(crate) fn is_wanted(method: &Method, request_fields: &HeaderMap) -> bool {
    let accepts = |value: &HeaderValue| value.to_str().is_ok_and(|value| value.contains("text/html"));
    *method != Method::CONNECT && request_fields.get_all(header::ACCEPT).iter().any(accepts)
}

/// Returns the HTML page for a failure, and adds the response fields that it needs.
pub(crate) fn dress(failure: &Failure, fields: &mut HeaderMap) -> String {
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    fields.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    fields.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    fields.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let said = fields.get("proxy-status").and_then(|said| said.to_str().ok()).unwrap_or_default();
    let (title, todo) = words(failure);
    let status = failure.status();
    let title = escaped(title);
    let what = escaped(&sentence(&failure.to_string()));
    let said = escaped(said);
    let todo: String = todo.iter().map(|line| format!("<li>{}</li>\n", escaped(line))).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n\
         <body>\n<main>\n<h1>{title}</h1>\n<p>{what}</p>\n<ul>\n{todo}</ul>\n\
         <footer>{} {}, from the cache between you and the site (Larder)<br><code>{said}</code></footer>\n</main>\n</body>\n</html>\n",
        status.as_u16(),
        status.canonical_reason().unwrap_or_default(),
    )
}

/// Returns a short title for a failure, and advice for the user.
fn words(failure: &Failure) -> (&'static str, &'static [&'static str]) {
    match failure {
        Failure::Offline { .. } | Failure::OnlyIfCached => (
            "This page is not stored, and there is no uplink",
            &[
                "Pages that were visited before may be available: try another.",
                "Come back when the connection to the internet works again.",
            ],
        ),
        Failure::Unusable { .. } | Failure::Timeout { .. } | Failure::Broken { .. } => (
            "The site does not respond correctly",
            &["Try again in a few minutes.", "If other sites work, the fault is with this one."],
        ),
        Failure::ClientDenied | Failure::TargetDenied { .. } | Failure::PortDenied { .. } | Failure::NoPassword => {
            ("This is not allowed here", &["The administrator of this network can allow it."])
        }
        Failure::Blocked { .. } => {
            ("This site is blocked on this network", &["Go back to the page that you came from."])
        }
        Failure::Overloaded(_) => ("Too many requests", &["Try again in a moment."]),
        Failure::NoSite { .. } => ("No site is served under this name", &["Check the address."]),
        _ => (
            "This request cannot be answered",
            &["Go back and try again.", "If this persists, send the text below to the administrator of this network."],
        ),
    }
}

/// Turns a message into a sentence, with a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let mut sentence: String = letters.next().map(|first| first.to_uppercase().collect()).unwrap_or_default();
    sentence.extend(letters);
    if !sentence.ends_with('.') {
        sentence.push('.');
    }
    sentence
}

/// Escapes a text for HTML.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const STYLE: &str = "body{margin:0;font:1.1rem/1.5 system-ui,sans-serif;background:#f6f5f1;color:#1d1d1b}\
main{max-width:36rem;margin:12vh auto;padding:0 1.5rem}h1{font-size:1.6rem;line-height:1.25}p{overflow-wrap:anywhere}\
footer{margin-top:3rem;font-size:.85rem;color:#5c5b57}code{overflow-wrap:anywhere}\
@media(prefers-color-scheme:dark){body{background:#1b1b1a;color:#ecebe6}footer{color:#a5a39c}}";

#[cfg(test)]
mod tests {
    use super::*;

    /// A link to a host with tags in its name must not run a script in another page's origin.
    #[test]
    fn what_others_say_is_escaped_and_nothing_is_loaded() {
        let mut fields = HeaderMap::new();
        let host = "<script>alert('x')</script>&\"".to_owned();
        let page = dress(&Failure::Offline { host }, &mut fields);
        assert!(
            !page.contains("<script") && page.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&quot;"),
            "{page}"
        );
        for outside in ["http://", "https://", "src=", "href=", "url("] {
            assert!(!page.contains(outside), "{outside}: {page}");
        }
        assert!(page.contains("504 Gateway Timeout") && page.contains("prefers-color-scheme:dark"));
        assert!(fields["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'"));
    }

    #[test]
    fn pages_are_for_browsers() {
        let accepting = |value: &'static str| HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(value))]);
        assert!(is_wanted(&Method::GET, &accepting("text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")));
        assert!(!is_wanted(&Method::CONNECT, &accepting("text/html")));
        for accept in ["*/*", "application/json", "image/avif,*/*"] {
            assert!(!is_wanted(&Method::GET, &accepting(accept)), "{accept}");
        }
        assert!(!is_wanted(&Method::GET, &HeaderMap::new()));
    }
}
