//! Reads a `[[mirror]]` section of the configuration file: a package registry by name, or any server under a path.
//!
//! Owns: the section's keys. The registries are in `settings::mirrors`. Invariant: an error marks the place of the
//! invalid text.

use super::{
    section::{ConfigProblem, ConfigSection, ConfigValue},
    values::{duration, origin},
};
use crate::{
    ground::value::BadValue,
    settings::{
        RunSettings,
        mirrors::{self, FileRules, NamedRegistry, OriginOf, RegistryKind},
    },
};
use larder_http::rules::MatchedPart;
use larder_proxy::{Mirror, MirrorLink};

/// Reads a `[[mirror]]` section into `settings`.
pub(super) fn read(section: &mut ConfigSection<'_>, settings: &mut RunSettings) -> Result<(), ConfigProblem> {
    let registry = section.take("name", |value| value.parsed("a name", mirrors::named));
    let url = section.take("origin", origin);
    let path = section.take("path", |value| value.parsed("a path", |text| Ok(text.to_owned())));
    let immutable = section.take("immutable", |value| value.each("a pattern", pattern)).unwrap_or_default();
    let fresh = section.take("fresh", duration);
    let follows = section.take("follow_redirects", ConfigValue::boolean);
    let documents = section.take("documents", |value| value.each("a media type", |text| Ok(text.to_owned())));
    let registries = section.take("registries", |value| value.each("a registry", NamedRegistry::parse));
    let is_of_containers = path.is_none() && registry.is_some_and(|registry| registry.kind == RegistryKind::Registries);
    if registries.is_some() && !is_of_containers {
        let help = "`registries` belongs to the mirror with name = \"oci\"";
        return Err(section.refused(BadValue::new("only a mirror of containers has registries", help)));
    }
    let help = "give a registry, such as name = \"pypi\", or a path and an origin of your own";
    let Some(path) = path else {
        let registry = registry.ok_or_else(|| section.missing("name", help))?;
        if !immutable.is_empty() || fresh.is_some() || documents.is_some() || follows.is_some() {
            let help = "override it in an earlier [[rule]], or give a path and an origin of your own";
            return Err(section.refused(BadValue::new("the rules of a built-in mirror cannot be changed here", help)));
        }
        settings.registry_mirrors.registries.extend(registries.unwrap_or_default());
        settings.registry_mirrors.names.push(registry.name);
        settings.registry_mirrors.origins.extend(url.map(|url| OriginOf { name: registry.name, url }));
        return Ok(());
    };
    let origin = url.ok_or_else(|| section.missing("origin", help))?;
    let links = vec![MirrorLink { url: origin.to_short_string(), path: path.clone() }];
    let documents = documents.unwrap_or_default();
    let name = path.trim_start_matches('/').to_owned();
    let mirror = Mirror { documents, links, ..Mirror::of_files(path, origin) };
    if let Some(fault) = mirror.fault() {
        return Err(section.refused(BadValue::new(
            fault,
            "give a mirror such as path = \"/company\", origin = \"https://repo.example\"",
        )));
    }
    let immutable: Vec<&str> = immutable.iter().map(String::as_str).collect();
    let said = FileRules {
        immutable: &immutable,
        fresh,
        stands_in: fresh.is_some(),
        follows: follows == Some(true),
        at_any_port: false,
        varies: &[],
        packages: None,
    };
    settings.proxy.rules.extend(said.rules(&name, &mirror.origin));
    settings.proxy.mirrors.push(mirror);
    Ok(())
}

fn pattern(text: &str) -> Result<String, BadValue> {
    match MatchedPart::Path.check(text) {
        Ok(()) if text.starts_with('/') => Ok(text.to_owned()),
        _ => {
            Err(BadValue::new(format!("not a path pattern: `{text}`"), "it begins with a slash, such as /releases/**"))
        }
    }
}
