//! Tests of rules that concern several settings.

use super::*;
use crate::ground::value;
use larder_proxy::Listener;

fn check(change: impl FnOnce(&mut RunSettings), expected: Result<(), &str>) {
    let mut settings = RunSettings::default();
    change(&mut settings);
    let found = settings.check().map_err(|failure| failure.to_string());
    match (&found, expected) {
        (Ok(()), Ok(())) => {}
        (Err(found), Err(expected)) if found.contains(expected) => {}
        _ => panic!("expected {expected:?}, found {found:?}"),
    }
}

#[test]
fn defaults_are_sound() {
    check(|_| {}, Ok(()));
    assert!(RunSettings::default().proxy_config().forward);
    assert!(RunSettings::default().proxy_config().clients.is_empty());
}

#[test]
fn strangers_need_an_invitation() {
    let open = || vec!["127.0.0.1:1".parse().unwrap(), "0.0.0.0:2".parse().unwrap()];
    check(|settings| settings.proxy.listeners = open(), Err("requires a list of clients: 0.0.0.0:2"));
    let invite = |settings: &mut RunSettings| {
        settings.proxy.listeners = open();
        settings.proxy.clients = vec!["10.0.0.0/8".parse().unwrap()];
    };
    check(invite, Ok(()));
    let admin = "10.0.0.1:1".parse().unwrap();
    check(|settings| settings.proxy.admin = Some(admin), Err("must be on this machine: 10.0.0.1:1"));
    let tls = Listener::tls("127.0.0.1:3".parse().unwrap());
    check(|settings| settings.proxy.listeners = vec![tls], Err("needs a certificate: 127.0.0.1:3"));
    let admin = |settings: &mut RunSettings| settings.proxy.admin = Some(settings.proxy.listeners[0].address);
    check(admin, Err("two listeners have the same address: 127.0.0.1:3128"));
    check(|settings| settings.proxy.listeners.clear(), Err("no address to listen on"));
}

/// Guards against a school whose browsers get past its block list.
#[test]
fn hosts_that_browsers_contact_directly_are_named_where_others_are_limited() {
    let warning = |is_limited: bool, hosts: &[&str], except: &[&str]| {
        let patterns = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let mut settings = RunSettings::default();
        settings.proxy.lists.default_deny = is_limited;
        settings.proxy.pac = larder_proxy::HostRules { hosts: patterns(hosts), except: patterns(except) };
        settings.warn_of_direct_hosts()
    };
    assert_eq!(warning(true, &[], &[]), None);
    assert_eq!(warning(false, &["pypi.org"], &["a.example"]), None);
    let ends = |warning: Option<String>, end: &str| warning.is_some_and(|warning| warning.ends_with(end));
    assert!(ends(warning(true, &["pypi.org"], &[]), ": all but those of `pac.hosts`"));
    assert!(ends(warning(true, &[], &["a.example"]), ": those of `pac.except`"));
}

#[test]
fn interception_is_for_forward_proxies() {
    let all = |settings: &mut RunSettings| settings.intercept.hosts.hosts = vec![HostPattern::All; 2];
    check(all, Ok(()));
    let once = |settings: &mut RunSettings| settings.intercept.hosts.hosts = vec![HostPattern::All];
    check(once, Err("banking, mail and passwords"));
    let reverse = |settings: &mut RunSettings| {
        all(settings);
        settings.proxy.default_origin = Some(value::origin("http://127.0.0.1:8080").unwrap());
    };
    check(reverse, Err("interception needs forward mode"));
    let both = |settings: &mut RunSettings| {
        reverse(settings);
        settings.forward = Some(true);
    };
    check(both, Err("interception and an origin for every host exclude each other: http://127.0.0.1:8080"));
}

#[test]
fn disks_and_sizes_go_together() {
    let at = |path: &str| DiskSettings::At(path.into());
    let with = |disks: Vec<DiskSettings>, sizes: Vec<u64>| {
        move |settings: &mut RunSettings| {
            settings.store.disks = disks;
            settings.store.sizes = sizes.into_iter().map(Some).collect();
        }
    };
    check(with(vec![at("a"), at("b")], vec![]), Ok(()));
    let one = 64 << 20;
    let two = 128 << 20;
    check(with(vec![at("a"), at("b")], vec![one]), Ok(()));
    check(with(vec![at("a"), at("b")], vec![one, two]), Ok(()));
    check(with(vec![at("a"), at("b")], vec![one, 1_000_000]), Err("these settings make no store: "));
    check(with(vec![DiskSettings::None], vec![one]), Err("a size is given, but no store on disk"));
    check(with(vec![at("a")], vec![1, 2]), Err("2 sizes for 1 disk"));
    check(with(vec![at("a"), at("a")], vec![]), Err("a disk is given twice: a"));
    check(with(vec![at("a"), DiskSettings::None], vec![]), Err("`none` is given together with a disk"));
}

#[test]
fn this_machine_is_always_a_client() {
    let mut settings = RunSettings::default();
    settings.proxy.clients = vec!["10.0.0.0/8".parse().unwrap()];
    let shown = settings.proxy_config().clients.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(shown, ["10.0.0.0/8", "127.0.0.0/8", "::1/128"]);
}

#[test]
fn an_origin_turns_forward_mode_off_unless_it_is_asked_for() {
    let mut settings = RunSettings::default();
    settings.proxy.default_origin = Some(value::origin("http://127.0.0.1:8080").unwrap());
    assert!(settings.reverses() && !settings.proxy_config().forward);
    settings.forward = Some(true);
    assert!(settings.reverses() && settings.proxy_config().forward);
    check(|settings| settings.forward = Some(false), Err("nothing to do: forward mode is off"));
}

#[test]
fn what_is_no_origin_says_why() {
    assert_eq!(
        value::origin("https://Example.com/a/").map(|url| url.to_string()).as_deref(),
        Ok("https://example.com:443/a")
    );
    for text in ["", "example.com", "ftp://example.com", "http://user@example.com", "http://a:70000", "http://a:0"] {
        let problem = value::origin(text).expect_err(text).problem;
        assert!(problem.starts_with("origin ") && problem.ends_with(text), "{problem}");
    }
}

#[test]
fn a_second_tier_needs_a_place_and_a_store() {
    let place = || Some("/t/packs".into());
    check(|settings| settings.proxy.tier.bytes_max = 1 << 40, Err("the second tier has no place for its packs"));
    check(|settings| settings.proxy.tier.folder = place(), Ok(()));
    let lonely = |settings: &mut RunSettings| {
        settings.proxy.tier.folder = place();
        settings.store.disks = vec![DiskSettings::None];
    };
    check(lonely, Err("a second tier needs a store"));
    let both = |settings: &mut RunSettings| {
        settings.proxy.tier.folder = place();
        settings.proxy.tier.bucket.name = Some("packs".to_owned());
    };
    check(both, Err("the second tier has a folder, and settings of a bucket"));
    let bucket = |settings: &mut RunSettings| settings.proxy.tier.bucket.name = Some("packs".to_owned());
    let has_buckets = cfg!(feature = "tier-s3");
    check(bucket, if has_buckets { Ok(()) } else { Err("it was built without the feature tier-s3") });
}
