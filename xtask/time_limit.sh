#!/bin/sh
# Cargo runs every program of this workspace through this script (.cargo/config.toml). Test programs are run by
# src/bin/time_limit.rs, which ends them if a test hangs. All other programs run as they are.
set -e
case $1 in
*/deps/*) ;;
*) exec "$@" ;;
esac
runner=${1%/deps/*}/time_limit_runner
source=${0%/*}/src/bin/time_limit.rs
# Cargo cannot build a runner before it runs the tests, so the first test program does.
if [ ! "$runner" -nt "$source" ]; then
    "${RUSTC:-rustc}" --edition 2024 -C opt-level=1 -o "$runner.$$" "$source"
    mv "$runner.$$" "$runner"
fi
exec "$runner" "$@"
