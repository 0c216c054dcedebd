//! The Proxy-Status field (RFC 9209).

use http::StatusCode;
use larder_http::{
    cache_status::node_name,
    proxy_status::{ProxyError, ProxyStatus},
};
use proptest::prelude::*;
use sfv::{List, ListEntry, Parser};

fn text(status: &ProxyStatus<'_>) -> String {
    status.to_value("Larder").to_str().expect("the value is ASCII").to_owned()
}

#[test]
fn failure_names_its_error_and_where_it_happened() {
    let status = ProxyStatus {
        next_hop: Some("a.example:443"),
        details: Some("no \"answer\" from C:\\"),
        ..ProxyStatus::failed(ProxyError::ConnectionTimeout)
    };
    let expected =
        "Larder;error=connection_timeout;next-hop=\"a.example:443\";details=\"no \\\"answer\\\" from C:\\\\\"";
    assert_eq!(text(&status), expected);
}

#[test]
fn status_of_the_origin_is_told_where_the_client_gets_another() {
    let status = ProxyStatus { received_status: Some(StatusCode::SERVICE_UNAVAILABLE), ..ProxyStatus::default() };
    assert_eq!(text(&status), "Larder;received-status=503");
}

#[test]
fn nothing_to_say_is_the_bare_name() {
    assert_eq!(text(&ProxyStatus::default()), "Larder");
}

#[test]
fn node_has_its_name_in_the_field_whether_it_is_a_token_or_not() {
    let status = ProxyStatus::failed(ProxyError::DnsError);
    for (name, expected) in [("edge-1.example", "edge-1.example;error"), ("3rd \"edge\"", "\"3rd \\\"edge\\\"\";error")]
    {
        let value = status.to_value(&node_name(name));
        assert_eq!(value.to_str().unwrap(), format!("{expected}=dns_error"));
    }
}

proptest! {
    #[test]
    fn every_status_is_a_valid_structured_list(
        next_hop in proptest::option::of("\\PC{0,20}"), details in proptest::option::of("\\PC{0,40}"), status in 100u16..1000,
        name in "\\PC{0,20}",
    ) {
        let status = ProxyStatus {
            next_hop: next_hop.as_deref(),
            details: details.as_deref(),
            received_status: StatusCode::from_u16(status).ok(),
            ..ProxyStatus::failed(ProxyError::DnsError)
        };
        let value = status.to_value(&node_name(&name));
        let list: List = Parser::new(value.as_bytes()).parse().expect("the value is a structured list");
        let [ListEntry::Item(member)] = &list[..] else { panic!("one member") };
        let error = member.params.get("error").and_then(|error| error.as_token()).map(|token| token.as_str());
        prop_assert_eq!(error, Some("dns_error"));
        prop_assert_eq!(member.params.contains_key("details"), details.is_some());
    }
}
