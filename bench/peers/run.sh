#!/usr/bin/env bash
# Runs the side-by-side benchmark with Larder beside nginx, on this machine, in one go.
#
#   PEERS=/path/to/peers bench/peers/run.sh check                          # quick functional check, stores nothing
#   PEERS=/path/to/peers bench/peers/run.sh run                            # all scenarios, larder and nginx
#   PEERS=/path/to/peers bench/peers/run.sh run --scenarios hot1k,fill     # any option of bench.py
#   PEERS=/path/to/peers bench/peers/run.sh report                         # the stored rows as a table
#
# PEERS is the harness (bench.py, servers/, tools/); default: ../shared/peers beside the project. It needs root, Linux,
# python3, cargo, wrk and nginx. SERVERS chooses who runs (default larder,nginx). The harness' tools are copied and
# built below target/peers, and rows go to bench/peers/results/results.json: nothing is written where PEERS lies.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
peers=${PEERS:-$root/../shared/peers}
target=${CARGO_TARGET_DIR:-$root/target}
command=${1:-check}
[ $# -gt 0 ] && shift

[ -f "$peers/bench.py" ] || { echo "no harness in $peers: set PEERS to the folder that holds bench.py" >&2; exit 2; }
mkdir -p "$here/results"
if [ "$command" = report ]; then
  exec python3 "$peers/bench.py" report --results "$here/results/results.json"
fi

cargo build --release --manifest-path "$root/Cargo.toml" -p larder
mkdir -p "$target/peers/source"
cp -R "$peers/tools/." "$target/peers/source/"
chmod -R u+w "$target/peers/source"
# The copy may lie within Larder's workspace, but does not belong to it.
grep -q '^\[workspace\]' "$target/peers/source/Cargo.toml" || printf '\n[workspace]\n' >> "$target/peers/source/Cargo.toml"
CARGO_TARGET_DIR="$target/peers" cargo build --release --manifest-path "$target/peers/source/Cargo.toml"

export PEERS_PLUGINS="$here" LARDER_BIN="${LARDER_BIN:-$target/release/larder}" PYTHONDONTWRITEBYTECODE=1
exec python3 "$peers/bench.py" "$command" --servers "${SERVERS:-larder,nginx}" --bin "$target/peers/release" \
  --results "$here/results/results.json" "$@"
