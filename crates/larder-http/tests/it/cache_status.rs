//! The Cache-Status field (RFC 9211).

use http::StatusCode;
use larder_http::{
    CacheStatus, Reason,
    cache_status::{Forward, RequestHandling},
};

fn text(status: CacheStatus) -> String {
    status.to_value("Larder").to_str().expect("the value is ASCII").to_owned()
}

#[test]
fn hit_carries_its_ttl() {
    assert_eq!(text(CacheStatus::hit(376)), "Larder; hit; ttl=376");
    assert_eq!(
        text(CacheStatus::hit(-412).because(Reason::RequestMaxStale)),
        "Larder; hit; ttl=-412; detail=request-max-stale"
    );
}

#[test]
fn ttl_stays_within_a_structured_integer() {
    assert_eq!(text(CacheStatus::hit(i64::MAX)), "Larder; hit; ttl=999999999999999");
    assert_eq!(text(CacheStatus::hit(i64::MIN)), "Larder; hit; ttl=-999999999999999");
}

#[test]
fn forwarded_request_says_why_and_what_came_of_it() {
    for (why, token) in [
        (Forward::Bypass, "bypass"),
        (Forward::Method, "method"),
        (Forward::UriMiss, "uri-miss"),
        (Forward::VaryMiss, "vary-miss"),
        (Forward::Miss, "miss"),
        (Forward::Request, "request"),
        (Forward::Stale, "stale"),
        (Forward::Partial, "partial"),
    ] {
        assert_eq!(text(CacheStatus::forwarded(why)), format!("Larder; fwd={token}"));
    }
    let handling = RequestHandling::Forwarded {
        why: Forward::Stale,
        status: Some(StatusCode::NOT_MODIFIED),
        stored: true,
        collapsed: true,
    };
    let status = CacheStatus { handling, detail: Some(Reason::Expired), tier: None };
    assert_eq!(text(status), "Larder; fwd=stale; fwd-status=304; stored; collapsed; detail=expired");
}

#[test]
fn hit_names_its_cache_and_where_it_came_from() {
    use larder_http::cache_status::{Tier, node_name};
    for (tier, detail) in [(Tier::Memory, "memory"), (Tier::Disk, "disk")] {
        let value = CacheStatus::hit(5).from_tier(tier).to_value(&node_name("edge-1.example"));
        assert_eq!(value, format!("edge-1.example; hit; ttl=5; detail={detail}"));
    }
    assert_eq!(
        text(CacheStatus::hit(5).from_tier(Tier::Disk).because(Reason::Offline)),
        "Larder; hit; ttl=5; detail=offline"
    );
    assert_eq!(node_name("1-edge"), "\"1-edge\"");
    assert_eq!(node_name(".a\"b"), "\".a\\\"b\"");
}
