//! Reads the keys about parent proxies: `parent`, `[parents]` and `no_parent`.
//!
//! Owns: how these keys combine. Invariant: `parent` and `[parents] members` exclude each other, so that no key is
//! ignored.

use super::{
    section::{ConfigProblem, ConfigSection},
    site::{self, read_group},
};
use crate::ground::value::{self, BadValue};
use larder_proxy::{DirectFallback, Parent, Parents};

/// Reads the section `[parents]` into `parents`, which may already contain a member from the key `parent`.
pub(super) fn read(top: &mut ConfigSection<'_>, parents: &mut Parents) {
    let is_given = !parents.members.is_empty();
    top.table("parents", |section| {
        let members = section.tables("members", member);
        if is_given && !members.is_empty() {
            let help = "use either `parent`, for parents of equal weight, or `members`";
            return Err(section.refused(BadValue::new("parents are listed twice: in `parent` and here", help)));
        }
        if !members.is_empty() {
            parents.members = members;
        }
        read_group(section, &mut parents.rules);
        section.set("direct", &mut parents.direct, |value| value.parsed("never or on-failure", fallback));
        let help = "give each parent once, with a weight from 1 to 100";
        parents.fault().map_or(Ok(()), |fault| Err(section.refused(BadValue::new(fault, help))))
    });
}

/// Reads a `[[parents.members]]` section: a parent's URL and weight.
fn member(section: &mut ConfigSection<'_>) -> Result<(Parent, u32), ConfigProblem> {
    let url = section.take("url", |value| value.parsed("a URL", value::parent));
    let url =
        url.ok_or_else(|| section.missing("url", "give the parent's address, such as url = \"http://10.0.0.1:3128\""))?;
    Ok((url, site::weight(section)))
}

fn fallback(text: &str) -> Result<DirectFallback, BadValue> {
    match text {
        "never" => Ok(DirectFallback::Never),
        "on-failure" => Ok(DirectFallback::OnFailure),
        _ => Err(BadValue::new(format!("unknown value for `direct`: `{text}`"), "it can be never or on-failure")),
    }
}
