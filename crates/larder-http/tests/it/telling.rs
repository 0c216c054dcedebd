//! The table of request fields that origins use without naming them in Vary, and its page.

use http::{HeaderMap, HeaderName};
use larder_http::{
    Settings, VaryRule,
    telling::{FieldTrust, IDENTITY_FIELDS, TELLING_FIELDS, TellingField, drop_untrusted, is_identity, is_telling},
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

#[test]
fn user_that_a_proxy_names_gets_no_response_that_was_made_for_others() {
    let settings = Settings::default();
    let anybodys = VaryRule::from_fields(&HeaderMap::new()).select(&HeaderMap::new(), &settings).unwrap();
    for identity in IDENTITY_FIELDS {
        for name in [identity.name.replace('*', "user"), identity.name.replace('*', "user").replace('-', "_")] {
            assert!(is_identity(&name.parse().unwrap()), "{name}");
            let request = fields(&format!("{name}: ann"));
            let other = fields(&format!("{name}: bob"));
            assert!(!anybodys.matches(&request, &settings), "{name}");
            let selecting = VaryRule::for_exchange(&request, &HeaderMap::new()).select(&request, &settings).unwrap();
            assert!(selecting.matches(&request, &settings) && selecting.cover_what_is_told(&request), "{name}");
            assert!(
                !selecting.matches(&other, &settings) && !selecting.matches(&HeaderMap::new(), &settings),
                "{name}"
            );
        }
    }
}

#[test]
fn fields_that_a_client_may_not_send_are_dropped_and_no_others() {
    let kept = |lines: &str, trust: FieldTrust| {
        let mut left = fields(lines);
        drop_untrusted(&mut left, trust);
        let mut names: Vec<_> = left.keys().map(HeaderName::to_string).collect();
        names.sort();
        names.join(" ")
    };
    let lines = "Host: a\nX_Forwarded_Host: evil\nRemote-User: ann\nRemote_User: ann\nTransfer_Encoding: chunked\n\
                 Content_Length: 5\nContent_length: 6\nX-Requested-With: b\nX-Amz-Date: c\nClient-Certificate: d";
    let by_proxy = FieldTrust { is_by_trusted_proxy: true, ..FieldTrust::default() };
    let lax = FieldTrust { keeps_underscores: true, ..FieldTrust::default() };
    let others = "x-amz-date x-requested-with";
    assert_eq!(kept(lines, FieldTrust::default()), format!("client-certificate host {others}"));
    assert_eq!(kept(lines, by_proxy), format!("client-certificate host remote-user {others}"));
    assert_eq!(kept(lines, lax), format!("client-certificate host {others} x_forwarded_host"));
    let both = FieldTrust { keeps_underscores: true, ..by_proxy };
    assert_eq!(kept(lines, both), format!("client-certificate host remote-user remote_user {others} x_forwarded_host"));
}

#[test]
fn underscore_in_the_name_of_a_field_is_read_as_a_hyphen() {
    for name in ["x_forwarded_host", "x-forwarded_proto", "x_original_url", "x_http_method_override"] {
        assert!(is_telling(&HeaderName::from_static(name)), "{name}");
    }
    assert!(!is_telling(&HeaderName::from_static("x_forwarded_for")));
}

/// The page must match the tables. If it does not, copy the rows from the failure message.
#[test]
fn page_shows_the_tables() {
    let row = |telling: &TellingField| {
        let names = telling.except.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        format!("| `{}` | {names} | {} |\n", telling.name, telling.tells)
    };
    let page = include_str!("../../../../docs/reference/trusted-fields.md");
    let told: String = TELLING_FIELDS.iter().map(row).collect();
    let users: String =
        IDENTITY_FIELDS.iter().map(|field| format!("| `{}` | {} |\n", field.name, field.tells)).collect();
    for rows in [told, users] {
        assert!(page.contains(&rows), "docs/reference/trusted-fields.md should have these rows:\n{rows}");
    }
}
