//! Reads the configuration file, which is TOML, and applies it to the settings.
//!
//! Owns: the order in which sections are read. The keys are in the table (`table`, `rows`); sections whose keys depend
//! on each other have readers of their own. Defaults and rules between settings are in `settings`. Invariant: a file
//! with an unknown key, a value of the wrong type or a value out of range is refused, and an error marks each place.

pub(crate) mod build_cache;
mod fleet;
mod key;
mod listeners;
mod mirror;
mod parents;
mod rate_limit;
mod rows;
mod rule;
mod section;
mod site;
mod table;
mod values;

use crate::{
    ground::{
        failure::{Failure, SHOWN_COUNT_MAX},
        size,
    },
    settings::{ConfigFile, RunSettings, StoreSettings, tuning},
};
use larder_http::{Rules, key_rules::KeyRules};
use larder_proxy::OriginUrl;
use larder_store::{Tuning, TuningKind, TuningValue};
pub(crate) use rows::{LISTENERS, ORIGINS, STORE};
use section::{ConfigProblem, ConfigSection, ConfigValue};
use std::{fs, io::Read, ops::Range, os::unix::fs::PermissionsExt, path::Path};
use table::Reader;
pub(crate) use table::{Setting, default_file, effective_file, flagged};
use values::{host_sent, proxy_protocol};

/// Maximum length of a configuration file, in bytes, so that a device or video given by mistake is refused at once.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Permission bit that lets all users read a file.
const READABLE_BY_ALL: u32 = 0o004;

const HELP: &str = "give the path of a readable TOML file; `larder config default` prints one to begin with";

/// Reads the file at `path` and applies it to `settings`.
///
/// # Errors
/// A runtime failure if the file cannot be read, a usage failure if its content is invalid.
pub(crate) fn apply(path: &Path, settings: &mut RunSettings) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(|error| unreadable(path, &error))?;
    let mode = file.metadata().map_err(|error| unreadable(path, &error))?.permissions().mode();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
    apply_bytes(path, &bytes, settings)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let listeners = listeners::places(&text);
    settings.file = Some(ConfigFile { path: path.to_owned(), text, listeners });
    if mode & READABLE_BY_ALL != 0 && settings.proxy.has_parent_password() {
        let shown = path.display();
        let problem =
            format!("{shown} contains a parent's password, and all users may read it (mode {:o})", mode & 0o777);
        let help = format!("chmod 640 {shown}, let larder's user read it, and change the password");
        return Err(Failure::usage(problem, help));
    }
    Ok(())
}

/// Returns the failure for a configuration file that cannot be read.
pub(crate) fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::runtime(format!("cannot read configuration {}: {error}", path.display()), HELP)
}

/// Applies the content of the configuration file at `path` to `settings`.
///
/// # Errors
/// A usage failure that marks the place of each fault.
pub(crate) fn apply_bytes(path: &Path, bytes: &[u8], settings: &mut RunSettings) -> Result<(), Failure> {
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let problem = format!("the configuration is longer than {}: {}", size::show(FILE_BYTES_MAX), path.display());
        return Err(Failure::usage(problem, HELP));
    }
    let text = str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        let place = at..at + char::REPLACEMENT_CHARACTER.len_utf8();
        let help = "save the file as UTF-8";
        let shown = String::from_utf8_lossy(bytes);
        Failure::usage("the file is not UTF-8 text", help).at(path, &shown, place, "not a character in UTF-8")
    })?;
    let problems = read_settings(text, settings);
    let failures = problems.into_iter().enumerate().map(|(index, ConfigProblem { span, problem, label, help, .. })| {
        let failure = Failure::usage(problem, help);
        // Each marked place holds a copy of the text, so only the places that will be shown are marked.
        Err(if index < SHOWN_COUNT_MAX { failure.at(path, text, span, &label) } else { failure })
    });
    Failure::all(failures)
}

/// Applies the settings in `text`. Returns all problems in the order of their places, or none if the text is valid.
fn read_settings(text: &str, settings: &mut RunSettings) -> Vec<ConfigProblem> {
    let mut top = match ConfigSection::parse(text) {
        Ok(parsed) => parsed,
        Err(problem) => return vec![problem],
    };
    listeners::read(&mut top, &mut settings.proxy);
    fleet::read(&mut top, &mut settings.proxy.fleet, &mut settings.drain_notice);
    for (name, rows) in table::sections() {
        let mut read = |section: &mut ConfigSection<'_>| {
            for row in rows.iter().filter(|row| !matches!(row.reader, Reader::Section)) {
                section.take(row.place().1, |value| row.read(settings, value));
            }
            if name == "store" {
                section.table("tuning", |section| {
                    read_tuning(section, &mut settings.store);
                    Ok(())
                });
            }
        };
        match name {
            "" => read(&mut top),
            _ if rows.iter().all(|row| matches!(row.reader, Reader::Section)) => {}
            name => top.table(name, |section| {
                read(section);
                Ok(())
            }),
        }
    }
    let proxy = &mut settings.proxy;
    if let Some((span, host_sent)) = take_placed(&mut top, "preserve_host", host_sent) {
        let alone = ConfigProblem::alone(span, "preserve_host", "origin", ORIGIN_HELP);
        change_origin(&mut top, &mut proxy.default_origin, alone, |url| url.with_host(host_sent));
    }
    if let Some((span, true)) = take_placed(&mut top, "proxy_protocol", proxy_protocol) {
        let alone = ConfigProblem::alone(span, "proxy_protocol", "origin", ORIGIN_HELP);
        change_origin(&mut top, &mut proxy.default_origin, alone, |url| url.with_proxy_header(true));
    }
    parents::read(&mut top, &mut proxy.parents);
    let mut known = site::KnownSites::default();
    proxy.sites = top.tables("site", |section| site::read(section, &mut known, &proxy.policy));
    proxy.rate_limits = top.numbered_tables("rate_limit", rate_limit::read);
    proxy.policy.cache.http.key_rules = KeyRules::new(top.tables("key", key::read));
    proxy.rules = Rules::new(top.numbered_tables("rule", rule::read));
    proxy.build_caches = top.tables("build_cache", build_cache::read);
    top.tables("mirror", |section| mirror::read(section, settings));
    top.finish()
}

fn read_tuning(section: &mut ConfigSection<'_>, store: &mut StoreSettings) {
    for field in Tuning::fields() {
        let value = section.take(field.name, |value| match field.kind {
            TuningKind::Switch => value.boolean().map(TuningValue::Switch),
            _ => value.parsed("a value for this constant", |text| tuning::parse(field, text)),
        });
        if let Some(value) = value {
            store.tune(field.name, value);
        }
    }
}

/// Takes `key` from a section and reads its value with `read`. Returns the value with its place in the file.
fn take_placed<'a, T>(
    section: &mut ConfigSection<'a>,
    key: &'static str,
    read: impl FnOnce(ConfigValue<'a>) -> Result<T, ConfigProblem>,
) -> Option<(Range<usize>, T)> {
    section.take(key, |value| {
        let span = value.span();
        read(value).map(|value| (span, value))
    })
}

/// Applies a setting to the configured origin. If no origin is configured, reports the problem `alone`.
fn change_origin(
    top: &mut ConfigSection<'_>,
    origin: &mut Option<OriginUrl>,
    alone: ConfigProblem,
    change: impl FnOnce(OriginUrl) -> OriginUrl,
) {
    match origin.take() {
        Some(url) => *origin = Some(change(url)),
        // The origin may be missing only because its value is invalid.
        None if top.has_problems() => {}
        None => top.report(alone),
    }
}

const ORIGIN_HELP: &str = "give the origin at the top of the file too, such as origin = \"https://registry.example\"; for \
                           a site, write the key in its [[site]]";

#[cfg(test)]
mod tests;
