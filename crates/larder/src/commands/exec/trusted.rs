//! The CA files that programs trusted before a session: those that variables name, and those in the programs' own
//! configuration files.
//!
//! Owns: the list of these files. `environment` makes programs trust them further, and `exec_server` makes Larder trust
//! them at origins. Invariant: nothing is changed, and a file that cannot be read names nothing.

use super::environment::{TRUST_VARIABLES, wget_before};
use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// Returns the texts of all files of CAs that the environment or a configuration file names. Their format is not
/// checked.
pub(crate) fn texts() -> Vec<String> {
    let home = env::home_dir();
    let read = |path: &Path| fs::read_to_string(path).ok();
    let mut texts: Vec<String> =
        TRUST_VARIABLES.iter().filter_map(env::var_os).filter_map(|path| read(Path::new(&path))).collect();
    for (path, names) in settings_files(home.as_deref()) {
        let Some(settings) = read(&path) else { continue };
        texts.extend(values(&settings, names).filter_map(|value| read(&expanded(value, home.as_deref()))));
        // npm's setting `ca` contains the certificates themselves, with escaped line breaks.
        texts.push(settings.replace("\\n", "\n"));
    }
    texts
}

/// Returns the configuration files that may exist, each with the names of its settings that name a file of CAs.
fn settings_files(home: Option<&Path>) -> Vec<(PathBuf, Names)> {
    let named = |variable: &str| env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
    let in_home = |path: &str| home.map(|home| home.join(path));
    let in_config =
        |path: &str| named("XDG_CONFIG_HOME").or_else(|| in_home(".config")).map(|config| config.join(path));
    let cargo = named("CARGO_HOME").or_else(|| in_home(".cargo"));
    let at = |path: &str| Some(PathBuf::from(path));
    let all: [(Vec<Option<PathBuf>>, Names); 9] = [
        (
            vec![
                at("/etc/pip.conf"),
                in_home(".pip/pip.conf"),
                in_config("pip/pip.conf"),
                named("PIP_CONFIG_FILE"),
                named("VIRTUAL_ENV").map(|folder| folder.join("pip.conf")),
            ],
            &["cert"],
        ),
        (
            vec![at(".npmrc"), in_home(".npmrc"), named("NPM_CONFIG_USERCONFIG"), named("npm_config_userconfig")],
            &["cafile"],
        ),
        (
            vec![at("/etc/gitconfig"), in_home(".gitconfig"), in_config("git/config"), named("GIT_CONFIG_GLOBAL")],
            &["sslcainfo"],
        ),
        (
            vec![
                cargo.as_ref().map(|cargo| cargo.join("config.toml")),
                cargo.map(|cargo| cargo.join("config")),
                at(".cargo/config.toml"),
            ],
            &["cainfo"],
        ),
        (vec![in_home(".curlrc")], &["cacert"]),
        (vec![wget_before()], &["cacertificate"]),
        (vec![at(".yarnrc.yml"), in_home(".yarnrc.yml"), in_home(".yarnrc")], &["httpscafilepath", "cafile"]),
        (vec![in_home(".condarc")], &["sslverify"]),
        (vec![in_home(".bundle/config"), in_home(".gemrc")], &["bundlesslcacert", "sslcacert"]),
    ];
    all.into_iter().flat_map(|(paths, names)| paths.into_iter().flatten().map(move |path| (path, names))).collect()
}

/// Names of settings, in lower case and without hyphens and underscores.
type Names = &'static [&'static str];

/// Returns the values of the settings `names` in a file. Its lines have the form `name = value`, `name: value` or
/// `--name value`.
fn values(settings: &str, names: Names) -> impl Iterator<Item = &str> {
    settings.lines().filter_map(move |line| {
        let line = line.trim().trim_start_matches(['-', ':']);
        let (name, value) = line.split_at(line.find(['=', ':', ' ', '\t'])?);
        let name = name.to_ascii_lowercase().replace(['-', '_'], "");
        let value = value.trim_matches(['=', ':', ' ', '\t']).trim_matches(['"', '\'']);
        (names.contains(&name.as_str()) && !value.is_empty()).then_some(value)
    })
}

/// Returns the path in a setting, with `~/`, `$HOME/` or `${HOME}/` at its start replaced by `home`.
fn expanded(path: &str, home: Option<&Path>) -> PathBuf {
    let rest = ["~/", "${HOME}/", "$HOME/"].into_iter().find_map(|start| path.strip_prefix(start));
    match (rest, home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_every_form_name_their_files() {
        let text = "[global]\n# cert = /no\ncert=/a\n  sslCAInfo = \"/b c\"\ncafile /d\n--cacert \"/e\"\nhttpsCaFilePath: '~/f'\n\
                    :ssl_ca_cert: /g\nca-certificate = /h\nBUNDLE_SSL_CA_CERT: \"/i\"\nssl_verify: \ncert";
        let names: Names = &[
            "cert",
            "sslcainfo",
            "cafile",
            "cacert",
            "httpscafilepath",
            "sslcacert",
            "cacertificate",
            "bundlesslcacert",
            "sslverify",
        ];
        let found: Vec<&str> = values(text, names).collect();
        assert_eq!(found, ["/a", "/b c", "/d", "/e", "~/f", "/g", "/h", "/i"]);
        assert_eq!(values("cert = /a", &["cafile"]).count(), 0);
        let home = Path::new("/h/me");
        for path in ["~/f", "${HOME}/f", "$HOME/f"] {
            assert_eq!(expanded(path, Some(home)), home.join("f"), "{path}");
        }
        assert_eq!(expanded("~/f", None), Path::new("~/f"));
    }
}
