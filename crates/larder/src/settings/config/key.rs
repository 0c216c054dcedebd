//! Reads a `[[key]]` section of the configuration file, which changes the cache keys of some URLs.
//!
//! Owns: the section's keys. `larder_http::key_rules` has their effect. Invariant: an error marks the place of the
//! invalid text.

use super::section::{ConfigProblem, ConfigSection};
use crate::ground::value::BadValue;
use larder_http::key_rules::KeyRule;

/// Reads a `[[key]]` section.
pub(super) fn read(section: &mut ConfigSection<'_>) -> Result<KeyRule, ConfigProblem> {
    let url = |text: &str| {
        let alone = KeyRule::new(&[text.to_owned()], &[], Some(text));
        alone.map(|_| text.to_owned()).map_err(|_| {
            BadValue::new(format!("not a URL without a query: `{text}`"), "write a URL such as http://example.com/")
        })
    };
    let urls = section.take("urls", |value| value.each("a URL", url)).filter(|urls| !urls.is_empty());
    let help = "give the URLs that it applies to by their beginnings, such as urls = [\"http://example.com/\"]";
    let urls = urls.ok_or_else(|| section.missing("urls", help))?;
    let name = |name: &str| {
        let alone = KeyRule::new(&urls, &[name.to_owned()], None);
        let help = "give an argument's whole name, or a prefix and `*`, such as utm_*";
        alone
            .map(|_| name.to_owned())
            .map_err(|_| BadValue::new(format!("not the name of a query argument: `{name}`"), help))
    };
    let stripped = section.take("strip", |value| value.each("a name", name)).unwrap_or_default();
    let stands = section.take("as", |value| value.parsed("a URL", url));
    let help = "give the arguments to strip, such as strip = [\"utm_*\"], or the URL prefix to use instead with `as`";
    KeyRule::new(&urls, &stripped, stands.as_deref()).map_err(|_| section.missing("strip", help))
}
