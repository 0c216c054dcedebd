#!/usr/bin/env bash
# Makes what is released, from the commit that is checked out: a Debian package, and an archive for other systems.
#
#   packaging/build.sh [--with BINARY]
#
# Results in target/package: larder_VERSION-1_ARCH.deb, larder-VERSION-ARCH.tar.gz, SHA256SUMS. Needs cargo-deb (cargo install
# cargo-deb). With --with a binary that was built before is taken.
set -euo pipefail
cd "$(dirname "$0")/.."

binary=target/release/larder
if [ "${1-}" = --with ]; then
    mkdir -p target/release
    [ "$2" -ef "$binary" ] || cp "$2" "$binary"
else
    cargo build --release --locked -p larder
fi
command -v cargo-deb > /dev/null || { echo "packaging/build.sh: needs cargo-deb: cargo install cargo-deb" >&2; exit 1; }

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
out=target/package
rm -rf "$out" target/release/manual
mkdir -p "$out"
"$binary" manual target/release/manual
# What tells lines in a backtrace is four fifths of the program; it stays in target/release.
mkdir -p target/release/package
strip -o target/release/package/larder "$binary"
cargo deb -p larder --no-build --output "$out/"

name=larder-$version-$(uname -m)
mkdir "$out/$name"
cp -r target/release/package/larder README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT packaging/larder.service packaging/larder.toml target/release/manual "$out/$name/"
mkdir "$out/$name/clients"
cp -r clients/c "$out/$name/clients/"
# The client's documents: the archive has no others but the manual pages.
cp docs/how-to/values.md docs/reference/store-socket.md "$out/$name/clients/c/"
for page in larder-store-serve.1 larder.1; do
    [ -s "$out/$name/manual/$page" ] || { echo "packaging/build.sh: no manual page $page" >&2; exit 1; }
done
tar -C "$out" --sort=name --owner=0 --group=0 --numeric-owner -czf "$out/$name.tar.gz" "$name"
rm -r "${out:?}/$name"
(cd "$out" && sha256sum -- *.deb *.tar.gz > SHA256SUMS)
ls -l "$out"
