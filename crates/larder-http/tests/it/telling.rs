//! The table of request fields that origins use without naming them in Vary, and its page.

use http::{HeaderMap, HeaderName};
use larder_http::{
    Settings, VaryRule,
    telling::{TELLING_FIELDS, is_telling},
};

use crate::support::fields;

#[test]
fn families_are_told_by_how_they_begin_and_clients_are_not_of_them() {
    for name in [
        "x-forwarded-host",
        "x-forwarded-client-cert",
        "x-forwarded-anything",
        "x-original-path",
        "x-envoy-original-path",
        "x-rewrite-uri",
        "next-router-state-tree",
        "rsc",
        "x-middleware-subrequest",
        "cf-visitor",
    ] {
        assert!(is_telling(&HeaderName::from_static(name)), "{name}");
    }
    for name in ["x-forwarded-for", "x-original-for", "x-envoy-external-address", "x-real-ip", "rscx", "accept", "next"]
    {
        assert!(!is_telling(&HeaderName::from_static(name)), "{name}");
    }
}

#[test]
fn each_field_of_the_table_is_part_of_the_key_of_those_who_send_it() {
    let settings = Settings::default();
    for telling in TELLING_FIELDS {
        let name = telling.name.replace('*', "host");
        let request = fields(&format!("{name}: evil"));
        let rule = VaryRule::for_exchange(&request, &HeaderMap::new());
        let selecting = rule.select(&request, &settings).expect("one field is no star");
        assert!(selecting.matches(&request, &settings) && !selecting.matches(&HeaderMap::new(), &settings), "{name}");
        assert!(selecting.cover_what_is_told(&request), "{name}");
        for excepted in telling.except {
            assert!(
                VaryRule::for_exchange(&fields(&format!("{excepted}: x")), &HeaderMap::new()).is_empty(),
                "{excepted}"
            );
        }
    }
}

/// The page must match the table. If it does not, copy the rows from the failure message.
#[test]
fn page_shows_the_table() {
    let rows: String = TELLING_FIELDS
        .iter()
        .map(|telling| {
            let names = telling.except.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            format!("| `{}` | {names} | {} |\n", telling.name, telling.tells)
        })
        .collect();
    let page = include_str!("../../../../docs/reference/trusted-fields.md");
    assert!(page.contains(&rows), "docs/reference/trusted-fields.md should have these rows:\n{rows}");
}
