//! Storing responses to requests with credentials (RFC 9111 3.5).

use larder_http::Reason;

use crate::support::{Response, date};

fn authorized(lines: &str) -> Response {
    Response::new(lines).answering("Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")
}

#[test]
fn max_age_or_expires_alone_do_not_allow_sharing() {
    for lines in
        ["Cache-Control: max-age=3600".to_owned(), format!("Expires: {}", date(3600)), "ETag: \"a\"".to_owned()]
    {
        assert_eq!(authorized(&lines).refusal(), Some(Reason::Authorization), "{lines}");
    }
}

#[test]
fn public_must_revalidate_and_s_maxage_allow_sharing() {
    for directives in ["max-age=3600, public", "max-age=3600, must-revalidate", "s-maxage=3600"] {
        let response = authorized(&format!("Cache-Control: {directives}"));
        assert!(response.is_reused_for(3, "Authorization: Basic other"), "{directives}");
    }
}

#[test]
fn proxy_revalidate_does_not_allow_sharing() {
    let response = authorized("Cache-Control: max-age=3600, proxy-revalidate");
    assert_eq!(response.refusal(), Some(Reason::Authorization));
}
