//! The table of package registries. A new registry needs only an entry here.

use super::{
    Registry, RegistryKind, RegistryServer,
    layouts::{
        FILES, FileLifetime, RegistryLayout, TEXTS, asks_packument, asks_simple_index, is_in_sparse_index,
        is_maven_release,
    },
};
use larder_http::rules::RequestTest;
use std::time::Duration;

const HOUR: Duration = Duration::from_hours(1);
/// The package registries that have a built-in mirror.
pub(crate) const REGISTRIES: &[Registry] = &[
    Registry {
        name: "pypi",
        servers: &[
            RegistryServer {
                suffix: "",
                url: "https://pypi.org",
                aliases: &[],
                immutable: &[],
                fresh: Duration::from_mins(5),
                follows: false,
                is_dedicated: true,
            },
            RegistryServer {
                suffix: "-files",
                url: "https://files.pythonhosted.org",
                aliases: &[],
                immutable: &["/packages/**"],
                fresh: HOUR,
                follows: false,
                is_dedicated: true,
            },
        ],
        layouts: &[
            RegistryLayout::files(&[
                "/**/*-[0-9]*-*-*.{whl,whl.metadata}",
                "/**/{packages,+f}/**/*-[0-9]*.{tar.gz,tar.bz2,zip}",
            ]),
            RegistryLayout::listing(&[], Some(asks_simple_index), SIMPLE_INDEX),
            RegistryLayout::listing(&["/**/simple/*/", "/**/simple/*"], None, SIMPLE_INDEX),
        ],
        documents: &["text/html", "application/vnd.pypi.simple.v1+html", "application/vnd.pypi.simple.v1+json"],
        usage: "pip install --trusted-host {host} --index-url {}/pypi/simple/ NAME",
        kind: RegistryKind::Files,
        negotiates: true,
        reloads_always: false,
    },
    Registry {
        name: "npm",
        servers: &[RegistryServer {
            suffix: "",
            url: "https://registry.npmjs.org",
            aliases: &["https://registry.yarnpkg.com"],
            immutable: &["/**/-/**/*.tgz"],
            fresh: Duration::from_mins(5),
            follows: false,
            is_dedicated: true,
        }],
        layouts: &[
            RegistryLayout::files(&["/**/-/**/*-[0-9]*.tgz"]),
            RegistryLayout::listing(&[], Some(asks_packument), PACKUMENT),
            RegistryLayout::listing(&[], None, &["application/vnd.npm.install-v1+json"]),
        ],
        documents: &["application/json", "application/vnd.npm.install-v1+json"],
        usage: "npm install --registry {}/npm/ NAME",
        kind: RegistryKind::Files,
        negotiates: true,
        reloads_always: false,
    },
    Registry {
        name: "cargo",
        servers: &[
            RegistryServer {
                suffix: "",
                url: "https://index.crates.io",
                aliases: &[],
                immutable: &[],
                fresh: Duration::from_mins(5),
                follows: false,
                is_dedicated: true,
            },
            RegistryServer {
                suffix: "-files",
                url: "https://static.crates.io",
                aliases: &[],
                immutable: &["/crates/**"],
                fresh: HOUR,
                follows: false,
                is_dedicated: true,
            },
        ],
        layouts: &[
            RegistryLayout::files(&["/**/*-[0-9]*.crate", "/**/crates/*/[0-9]*/download"]),
            RegistryLayout::listing(&[], Some(is_in_sparse_index), TEXTS),
        ],
        documents: &["application/json"],
        usage: "in ~/.cargo/config.toml: [source.crates-io] replace-with = \"larder\" and [source.larder] registry = \"sparse+{}/cargo/\"",
        kind: RegistryKind::Files,
        negotiates: true,
        reloads_always: false,
    },
    Registry {
        name: "go",
        servers: &[RegistryServer {
            suffix: "",
            url: "https://proxy.golang.org",
            aliases: &[],
            immutable: GO_FILES,
            fresh: Duration::from_mins(5),
            follows: false,
            is_dedicated: true,
        }],
        layouts: &[
            RegistryLayout::files(GO_FILES),
            RegistryLayout::files(&["/lookup/**/*@v*", "/tile/[0-9]*/**"]),
            RegistryLayout::listing(&["/**/@v/{list,*.info}", "/**/@latest"], None, TEXTS),
        ],
        documents: &[],
        usage: "GOPROXY={}/go go build",
        kind: RegistryKind::Files,
        negotiates: false,
        reloads_always: false,
    },
    Registry {
        name: "maven",
        servers: &[RegistryServer {
            suffix: "",
            url: "https://repo.maven.apache.org/maven2",
            aliases: &["https://repo1.maven.org/maven2"],
            // Not listed here: `maven-metadata.xml` and its checksums, which change.
            immutable: &["/**/*-*[0-9]*.{jar,pom,war,aar,module,asc,sha1,sha256,sha512,md5,zip,tar.gz}"],
            fresh: Duration::from_mins(10),
            follows: false,
            is_dedicated: true,
        }],
        layouts: &[
            RegistryLayout { test: Some(is_maven_release), ..RegistryLayout::files(&[]) },
            RegistryLayout::listing(&["/**/maven-metadata.{xml,xml.sha1,xml.sha256,xml.sha512,xml.md5}"], None, FILES),
        ],
        documents: &[],
        usage: "in ~/.m2/settings.xml: <mirror><id>larder</id><mirrorOf>central</mirrorOf><url>{}/maven</url></mirror>",
        kind: RegistryKind::Files,
        negotiates: false,
        // Maven 3.8 sends `Cache-Control: no-cache`; 3.9 adds `no-store`.
        reloads_always: true,
    },
    Registry {
        name: "debian",
        servers: &[RegistryServer {
            suffix: "",
            url: "http://deb.debian.org/debian",
            aliases: &["http://ftp.debian.org/debian"],
            immutable: &["/pool/**", "/dists/**/by-hash/**"],
            fresh: Duration::from_mins(5),
            follows: false,
            is_dedicated: true,
        }],
        layouts: &[
            RegistryLayout::files(&[
                "/**/pool/**/*_*.{deb,udeb,ddeb,dsc,tar.gz,tar.xz,tar.bz2,tar.zst}",
                "/**/dists/**/by-hash/**",
            ]),
            RegistryLayout::listing(&["/**/dists/**"], None, FILES),
        ],
        documents: &[],
        usage: "in sources.list: deb {}/debian bookworm main",
        kind: RegistryKind::Files,
        negotiates: false,
        reloads_always: false,
    },
    Registry {
        name: "debian-security",
        servers: &[RegistryServer {
            suffix: "",
            url: "http://deb.debian.org/debian-security",
            aliases: &["http://security.debian.org/debian-security"],
            immutable: &["/pool/**", "/dists/**/by-hash/**"],
            fresh: Duration::from_mins(5),
            follows: false,
            is_dedicated: true,
        }],
        layouts: &[],
        documents: &[],
        usage: "in sources.list: deb {}/debian-security bookworm-security main",
        kind: RegistryKind::Files,
        negotiates: false,
        reloads_always: false,
    },
    Registry {
        name: "ubuntu",
        servers: &[RegistryServer {
            suffix: "",
            url: "http://archive.ubuntu.com/ubuntu",
            aliases: &["http://security.ubuntu.com/ubuntu"],
            immutable: &["/pool/**", "/dists/**/by-hash/**"],
            fresh: Duration::from_mins(5),
            follows: false,
            is_dedicated: true,
        }],
        layouts: &[],
        documents: &[],
        usage: "in sources.list: deb {}/ubuntu noble main",
        kind: RegistryKind::Files,
        negotiates: false,
        reloads_always: false,
    },
    Registry {
        name: "rubygems",
        servers: &[RegistryServer {
            suffix: "",
            url: "https://rubygems.org",
            // Bundler requests the index from this separate host.
            aliases: &["https://index.rubygems.org"],
            immutable: &["/gems/*.gem", "/quick/**/*.gemspec.rz"],
            fresh: Duration::from_mins(5),
            follows: false,
            is_dedicated: true,
        }],
        layouts: &[
            RegistryLayout::files(&["/**/gems/*-[0-9]*.gem", "/**/quick/**/*.gemspec.rz"]),
            RegistryLayout::listing(&["/**/*specs.4.8.gz"], None, FILES),
        ],
        documents: &[],
        usage: "bundle config mirror.https://rubygems.org {}/rubygems",
        kind: RegistryKind::Files,
        negotiates: false,
        reloads_always: false,
    },
    Registry {
        name: "nix",
        servers: &[RegistryServer {
            suffix: "",
            url: "https://cache.nixos.org",
            aliases: &[],
            immutable: &["/nar/**"],
            fresh: HOUR,
            follows: false,
            is_dedicated: true,
        }],
        layouts: &[
            RegistryLayout::files(&["/**/nar/*.{nar,nar.xz,nar.zst,nar.bz2}"]),
            RegistryLayout::listing(&["/**/*.narinfo"], None, &[]),
        ],
        documents: &[],
        usage: "nix-build --option substituters {}/nix",
        kind: RegistryKind::Files,
        negotiates: true,
        reloads_always: false,
    },
    Registry {
        name: "conda",
        servers: &[RegistryServer {
            suffix: "",
            url: "https://conda.anaconda.org",
            aliases: &[],
            immutable: &["/**/*.{conda,tar.bz2}"],
            fresh: Duration::from_mins(10),
            follows: false,
            is_dedicated: true,
        }],
        layouts: &[
            RegistryLayout::files(&["/**/{noarch,linux-*,osx-*,win-*}/*-*-*.{conda,tar.bz2}"]),
            RegistryLayout::listing(
                &["/**/{noarch,linux-*,osx-*,win-*}/*repodata*.{json,json.zst,json.bz2,json.gz}"],
                None,
                FILES,
            ),
        ],
        documents: &[],
        usage: "conda install --override-channels -c {}/conda/conda-forge NAME",
        kind: RegistryKind::Files,
        negotiates: true,
        reloads_always: false,
    },
    Registry {
        name: "github-releases",
        servers: &[RegistryServer {
            suffix: "",
            url: "https://github.com",
            aliases: &[],
            // Other tags, such as `nightly`, receive new files.
            immutable: &[
                "/*/*/releases/download/v[0-9]*/**",
                "/*/*/releases/download/[0-9]*/**",
                "/*/*/archive/refs/tags/**",
            ],
            fresh: Duration::from_mins(5),
            follows: true,
            is_dedicated: false,
        }],
        layouts: &[],
        documents: &[],
        usage: "curl -O {}/github-releases/OWNER/REPOSITORY/releases/download/TAG/FILE",
        kind: RegistryKind::Files,
        negotiates: false,
        reloads_always: false,
    },
    Registry {
        name: "huggingface",
        servers: &[RegistryServer {
            suffix: "",
            url: "https://huggingface.co",
            aliases: &[],
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
            is_dedicated: false,
        }],
        layouts: &[],
        documents: &[],
        usage: "HF_HUB_DISABLE_XET=1 HF_ENDPOINT={}/huggingface hf download NAME",
        kind: RegistryKind::Files,
        negotiates: false,
        reloads_always: false,
    },
    Registry {
        name: "oci",
        servers: &[
            registry("docker.io", "https://registry-1.docker.io/v2"),
            registry("ghcr.io", "https://ghcr.io/v2"),
            registry("quay.io", "https://quay.io/v2"),
            registry("registry.k8s.io", "https://registry.k8s.io/v2"),
            registry("gcr.io", "https://gcr.io/v2"),
            registry("mcr.microsoft.com", "https://mcr.microsoft.com/v2"),
            registry("public.ecr.aws", "https://public.ecr.aws/v2"),
        ],
        layouts: &[],
        documents: &[],
        usage: "with {} for HOST:PORT, skopeo copy --src-tls-verify=false docker://HOST:PORT/library/debian:12 dir:debian, and HOST:PORT/ghcr.io/OWNER/NAME for others",
        kind: RegistryKind::Registries,
        negotiates: false,
        reloads_always: false,
    },
];

/// Files of Go modules at canonical versions, and checksums of versions. Other versions, such as branches, receive new
/// files.
const GO_FILES: &[&str] = &["/**/@v/v[0-9]*.[0-9]*.[0-9]*.{info,mod,zip}", "/**/sumdb/*/{lookup,tile}/**"];
const SIMPLE_INDEX: &[&str] =
    &["application/vnd.pypi.simple.v1+json", "application/vnd.pypi.simple.v1+html", "text/html", "application/json"];
const PACKUMENT: &[&str] = &["application/vnd.npm.install-v1+json", "application/json"];

impl RegistryLayout {
    /// Creates the layout of files that never change.
    const fn files(paths: &'static [&'static str]) -> Self {
        Self { paths, test: None, types: FILES, keeps: FileLifetime::Always }
    }

    /// Creates the layout of listings.
    const fn listing(
        paths: &'static [&'static str],
        test: Option<RequestTest>,
        types: &'static [&'static str],
    ) -> Self {
        Self { paths, test, types, keeps: FileLifetime::Minutes(5) }
    }
}

/// Paths of content that container registries name by its digest.
pub(super) const BY_DIGEST: &[&str] = &["/**/blobs/sha*:*", "/**/manifests/sha*:*"];

const fn registry(name: &'static str, url: &'static str) -> RegistryServer {
    RegistryServer {
        suffix: name,
        url,
        aliases: &[],
        immutable: BY_DIGEST,
        fresh: Duration::ZERO,
        follows: true,
        is_dedicated: true,
    }
}
