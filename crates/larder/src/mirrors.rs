//! The mirrors that are known by name: which servers a package world has, what of them never changes, and how its clients are
//! told of us.
//!
//! Owns: the table, and making of a row what the proxy takes. Does not: serve (see `larder_proxy::Mirror`). Invariants: a row is
//! data; what is said of its files holds however they are asked for, by the mirror or through interception.

use crate::value::{self, BadValue};
use larder_http::{
    Ruling,
    rules::{MatchTexts, Rule},
    ruling::{Following, Ignored},
};
use larder_proxy::{Mirror, MirrorLink, OriginUrl, ProxyConfig};
use std::time::Duration;

/// A package world.
#[derive(Debug)]
pub(crate) struct World {
    /// What it is called, and its path.
    pub(crate) name: &'static str,
    /// Its servers; the first is the one that documents come from.
    pub(crate) servers: &'static [Server],
    /// Media types of documents whose links to its servers are made to lead here.
    pub(crate) documents: &'static [&'static str],
    /// How to use it; `{}` is our address.
    pub(crate) usage: &'static str,
}

/// One of its servers.
#[derive(Debug)]
pub(crate) struct Server {
    /// What follows the world's name in its path.
    pub(crate) suffix: &'static str,
    pub(crate) url: &'static str,
    /// Paths below the URL whose files never change.
    pub(crate) immutable: &'static [&'static str],
    /// For how long everything else is fresh.
    pub(crate) fresh: Duration,
    /// Whether its redirections are followed here, so that what is kept is the file and not a link that ends.
    pub(crate) follows: bool,
}

const HOUR: Duration = Duration::from_hours(1);
/// For how long what is there may stand in for a server that cannot be reached.
const STALE_ON_ERROR: Duration = Duration::from_hours(30 * 24);

/// The table.
pub(crate) const WORLDS: &[World] = &[
    World {
        name: "pypi",
        servers: &[
            Server {
                suffix: "",
                url: "https://pypi.org",
                immutable: &[],
                fresh: Duration::from_mins(5),
                follows: false,
            },
            Server {
                suffix: "-files",
                url: "https://files.pythonhosted.org",
                immutable: &["/packages/**"],
                fresh: HOUR,
                follows: false,
            },
        ],
        documents: &["text/html", "application/vnd.pypi.simple.v1+html", "application/vnd.pypi.simple.v1+json"],
        usage: "pip install --index-url {}/pypi/simple/ NAME",
    },
    World {
        name: "npm",
        servers: &[Server {
            suffix: "",
            url: "https://registry.npmjs.org",
            immutable: &["/**/-/**/*.tgz"],
            fresh: Duration::from_mins(5),
            follows: false,
        }],
        documents: &["application/json", "application/vnd.npm.install-v1+json"],
        usage: "npm install --registry {}/npm/ NAME",
    },
    World {
        name: "cargo",
        servers: &[
            Server {
                suffix: "",
                url: "https://index.crates.io",
                immutable: &[],
                fresh: Duration::from_mins(5),
                follows: false,
            },
            Server {
                suffix: "-files",
                url: "https://static.crates.io",
                immutable: &["/crates/**"],
                fresh: HOUR,
                follows: false,
            },
        ],
        documents: &["application/json"],
        usage: "in ~/.cargo/config.toml: [source.crates-io] replace-with = \"larder\" and [source.larder] registry = \"sparse+{}/cargo/\"",
    },
    World {
        name: "go",
        servers: &[Server {
            suffix: "",
            url: "https://proxy.golang.org",
            immutable: &["/**/@v/*.{info,mod,zip}"],
            fresh: Duration::from_mins(5),
            follows: false,
        }],
        documents: &[],
        usage: "GOPROXY={}/go go build",
    },
    World {
        name: "maven",
        servers: &[Server {
            suffix: "",
            url: "https://repo.maven.apache.org/maven2",
            immutable: &["/**/*.{jar,pom,war,aar,module,asc,sha1,sha256,sha512,md5,zip,tar.gz}"],
            fresh: Duration::from_mins(10),
            follows: false,
        }],
        documents: &[],
        usage: "in ~/.m2/settings.xml: <mirror><id>larder</id><mirrorOf>central</mirrorOf><url>{}/maven</url></mirror>",
    },
    World {
        name: "debian",
        servers: &[Server {
            suffix: "",
            url: "http://deb.debian.org/debian",
            immutable: &["/pool/**", "/dists/**/by-hash/**"],
            fresh: Duration::from_mins(5),
            follows: false,
        }],
        documents: &[],
        usage: "in sources.list: deb {}/debian bookworm main",
    },
    World {
        name: "debian-security",
        servers: &[Server {
            suffix: "",
            url: "http://deb.debian.org/debian-security",
            immutable: &["/pool/**", "/dists/**/by-hash/**"],
            fresh: Duration::from_mins(5),
            follows: false,
        }],
        documents: &[],
        usage: "in sources.list: deb {}/debian-security bookworm-security main",
    },
    World {
        name: "ubuntu",
        servers: &[Server {
            suffix: "",
            url: "http://archive.ubuntu.com/ubuntu",
            immutable: &["/pool/**", "/dists/**/by-hash/**"],
            fresh: Duration::from_mins(5),
            follows: false,
        }],
        documents: &[],
        usage: "in sources.list: deb {}/ubuntu noble main",
    },
    World {
        name: "rubygems",
        servers: &[Server {
            suffix: "",
            url: "https://rubygems.org",
            immutable: &["/gems/*.gem", "/quick/**/*.gemspec.rz"],
            fresh: Duration::from_mins(5),
            follows: false,
        }],
        documents: &[],
        usage: "bundle config mirror.https://rubygems.org {}/rubygems",
    },
    World {
        name: "nix",
        servers: &[Server {
            suffix: "",
            url: "https://cache.nixos.org",
            immutable: &["/nar/**"],
            fresh: HOUR,
            follows: false,
        }],
        documents: &[],
        usage: "nix-build --option substituters {}/nix",
    },
    World {
        name: "conda",
        servers: &[Server {
            suffix: "",
            url: "https://conda.anaconda.org",
            immutable: &["/**/*.{conda,tar.bz2}"],
            fresh: Duration::from_mins(10),
            follows: false,
        }],
        documents: &[],
        usage: "conda install --override-channels -c {}/conda/conda-forge NAME",
    },
    World {
        name: "github-releases",
        servers: &[Server {
            suffix: "",
            url: "https://github.com",
            // Other tags, such as `nightly`, get new files.
            immutable: &[
                "/*/*/releases/download/v[0-9]*/**",
                "/*/*/releases/download/[0-9]*/**",
                "/*/*/archive/refs/tags/**",
            ],
            fresh: Duration::from_mins(5),
            follows: true,
        }],
        documents: &[],
        usage: "curl -O {}/github-releases/OWNER/REPOSITORY/releases/download/TAG/FILE",
    },
    World {
        name: "huggingface",
        servers: &[Server {
            suffix: "",
            url: "https://huggingface.co",
            immutable: &[concat!(
                "/**/resolve/",
                "[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]",
                "[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]",
                "[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]",
                "[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]",
                "/**"
            )],
            fresh: Duration::from_mins(5),
            follows: true,
        }],
        documents: &[],
        usage: "HF_HUB_DISABLE_XET=1 HF_ENDPOINT={}/huggingface hf download NAME",
    },
];

/// A world and, if it is not the usual one, the server that is to be asked in place of its first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OriginOf {
    pub(crate) name: &'static str,
    pub(crate) url: OriginUrl,
}

/// Finds a world by its name.
pub(crate) fn named(name: &str) -> Result<&'static World, BadValue> {
    WORLDS.iter().find(|world| world.name == name).ok_or_else(|| {
        let names = || WORLDS.iter().map(|world| world.name);
        let help = match value::nearest(name, names()) {
            Some(near) => format!("did you mean `{near}`? `larder mirror list` names all"),
            None => format!(
                "known are {}; another server is a [[mirror]] in the configuration",
                names().collect::<Vec<_>>().join(", ")
            ),
        };
        BadValue::new(format!("no mirror is known by this name: `{name}`"), help)
    })
}

/// Reads `NAME=URL`.
pub(crate) fn parse_origin_of(text: &str) -> Result<OriginOf, BadValue> {
    let bad = || {
        BadValue::new(
            format!("not a mirror and its server: `{text}`"),
            "write NAME=URL, such as pypi=https://pypi.company.example",
        )
    };
    let (name, url) = text.split_once('=').ok_or_else(bad)?;
    let name = named(name)?.name;
    Ok(OriginOf { name, url: crate::settings::parse_origin(url)? })
}

impl World {
    /// Adds this world to what a proxy is started with: its mirrors, and what is said of its files.
    pub(crate) fn add_to(&self, proxy: &mut ProxyConfig, first: Option<&OriginUrl>) {
        let url = |index: usize, server: &Server| match first.filter(|_| index == 0) {
            Some(url) => url.clone(),
            None => server.url.parse().expect("the table holds URLs"),
        };
        let mut links = Vec::new();
        for (index, server) in self.servers.iter().enumerate() {
            let path = format!("/{}{}", self.name, server.suffix);
            links.push(MirrorLink { url: url(index, server).to_short_string(), path });
        }
        let documents: Vec<String> = self.documents.iter().map(|document| (*document).to_owned()).collect();
        let mut rules = Vec::new();
        for (index, server) in self.servers.iter().enumerate() {
            let (origin, path) = (url(index, server), links[index].path.clone());
            rules.extend(server.rules(self.name, &origin));
            let (documents, links) = if index == 0 && !documents.is_empty() {
                (documents.clone(), links.clone())
            } else {
                (Vec::new(), Vec::new())
            };
            proxy.mirrors.push(Mirror { path, origin, documents, links });
        }
        proxy.rules.extend(rules);
    }
}

impl Server {
    fn rules(&self, world: &str, origin: &OriginUrl) -> Vec<Rule> {
        let about = Said { immutable: self.immutable, fresh: Some(self.fresh), follows: self.follows };
        about.rules(world, origin)
    }
}

/// What is said of a server's files, by patterns of their paths below its base path.
pub(crate) struct Said<'a> {
    /// Those that never change.
    pub(crate) immutable: &'a [&'a str],
    /// For how long the others are fresh, if that is said.
    pub(crate) fresh: Option<Duration>,
    /// Whether redirections are followed.
    pub(crate) follows: bool,
}

impl Said<'_> {
    /// Returns it as rules, which have `name` in theirs.
    pub(crate) fn rules(&self, name: &str, origin: &OriginUrl) -> Vec<Rule> {
        let statuses: &[&str] = if self.follows { &["200", "301", "302", "303", "307", "308"] } else { &["200"] };
        let following = if self.follows { Following::Safe } else { Following::None };
        let rule = |patterns: &[&str], ruling: Ruling| {
            let paths = patterns.iter().map(|pattern| format!("{}{pattern}", origin.base_path())).collect();
            let (hosts, statuses) =
                (vec![origin.host().to_owned()], statuses.iter().map(ToString::to_string).collect());
            let texts = MatchTexts { hosts, paths, statuses, ..MatchTexts::default() };
            Rule::new(&texts, Ruling { following, ..ruling }).expect("patterns are tried where they are read")
        };
        let ignored = Ignored { client_directives: true, ..Ignored::default() };
        let kept = || Ruling {
            name: format!("{name}: never changes"),
            immutable: true,
            ignored: ignored.clone(),
            ..Ruling::default()
        };
        let other = Ruling {
            name: format!("{name}: the rest"),
            fresh: self.fresh,
            stale_on_error: self.fresh.map(|_| STALE_ON_ERROR),
            ignored: Ignored { must_revalidate: true, ..ignored.clone() },
            ..Ruling::default()
        };
        let kept = (!self.immutable.is_empty()).then(|| rule(self.immutable, kept()));
        let other = (self.fresh.is_some() || self.follows).then(|| rule(&["/**"], other));
        kept.into_iter().chain(other).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_http::rules::RuledRequest;

    #[test]
    fn every_row_makes_a_configuration_that_starts() {
        let mut proxy = ProxyConfig { forward: false, ..ProxyConfig::default() };
        for world in WORLDS {
            world.add_to(&mut proxy, None);
            assert!(world.usage.contains("{}"), "{}", world.name);
        }
        proxy.check().unwrap();
        let mut paths: Vec<&str> = proxy.mirrors.iter().map(|mirror| mirror.path.as_str()).collect();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), proxy.mirrors.len());
    }

    /// The rule for a file of a world.
    fn rule_of(world: &str, authority: &str, path: &str) -> String {
        let mut proxy = ProxyConfig::default();
        named(world).unwrap().add_to(&mut proxy, None);
        let request = RuledRequest { method: &http::Method::GET, authority, path };
        let found = proxy.rules.find(&request, http::StatusCode::OK, &http::HeaderMap::new());
        found.map_or_else(String::new, |ruling| ruling.name.clone())
    }

    #[test]
    fn files_that_never_change_are_told_from_listings() {
        for (world, authority, path, is_kept) in [
            ("pypi", "files.pythonhosted.org", "/packages/ab/cd/six-1.16.0-py2.py3-none-any.whl", true),
            ("pypi", "pypi.org", "/simple/six/", false),
            ("npm", "registry.npmjs.org", "/is-number/-/is-number-1.0.0.tgz", true),
            ("npm", "registry.npmjs.org", "/@types/node/-/node-1.0.0.tgz", true),
            ("npm", "registry.npmjs.org", "/is-number", false),
            ("cargo", "static.crates.io", "/crates/itoa/1.0.0/download", true),
            ("cargo", "index.crates.io", "/it/oa/itoa", false),
            ("go", "proxy.golang.org", "/github.com/google/uuid/@v/v1.6.0.zip", true),
            ("go", "proxy.golang.org", "/github.com/google/uuid/@v/list", false),
            ("maven", "repo.maven.apache.org", "/maven2/junit/junit/4.13.2/junit-4.13.2.pom", true),
            ("maven", "repo.maven.apache.org", "/maven2/junit/junit/maven-metadata.xml", false),
            ("github-releases", "github.com", "/a/b/releases/download/v1.0/b.tar.gz", true),
            ("github-releases", "github.com", "/a/b/releases/download/nightly/b.tar.gz", false),
            (
                "huggingface",
                "huggingface.co",
                "/a/b/resolve/0123456789abcdef0123456789abcdef01234567/model.safetensors",
                true,
            ),
            ("huggingface", "huggingface.co", "/a/b/resolve/main/model.safetensors", false),
            ("debian", "deb.debian.org", "/debian/pool/main/h/hello/hello_1_amd64.deb", true),
            ("debian", "deb.debian.org", "/debian/dists/bookworm/InRelease", false),
        ] {
            let expected = if is_kept { "never changes" } else { "the rest" };
            assert_eq!(rule_of(world, authority, path), format!("{world}: {expected}"), "{path}");
        }
        assert_eq!(rule_of("maven", "repo.maven.apache.org", "/other/a.jar"), "", "not below its URL");
    }

    #[test]
    fn another_server_takes_the_place_of_the_first() {
        let OriginOf { name, url } = parse_origin_of("pypi=https://pypi.company.example/root").unwrap();
        let mut proxy = ProxyConfig::default();
        named(name).unwrap().add_to(&mut proxy, Some(&url));
        assert_eq!(proxy.mirrors[0].origin, url);
        assert_eq!(proxy.mirrors[0].links[0].url, "https://pypi.company.example/root");
        assert_eq!(proxy.mirrors[1].path, "/pypi-files");
    }

    #[test]
    fn names_that_nobody_knows_are_refused_with_what_was_meant() {
        assert!(named("pypy").unwrap_err().help.contains("`pypi`"));
        assert!(parse_origin_of("pypi").is_err() && parse_origin_of("pypi=x y").is_err());
    }
}
