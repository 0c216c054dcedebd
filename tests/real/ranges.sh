#!/usr/bin/env bash
# A file of 4 GB by ranges: 16 clients at random, several ranges at once, aborted and resumed, changed at the origin midway.
#
#   tests/real/ranges.sh
#   RANGES_BYTES=300000000 tests/real/ranges.sh
#
# Passes if every byte is right, only the asked chunks reach the origin, each once, and no response has bytes of two versions.
. "$(dirname "$0")/stage.sh"
need python3:python3
bytes=${RANGES_BYTES:-4294967296}

origin_port=$(free_port)
python3 "$here/ranges.py" origin "$origin_port" "$bytes" >"$stage/origin.log" 2>&1 </dev/null &
pids+=("$!")
await 30 answers "$origin_port"
launch ranges --disk "$stage/store.larder" --size 2GB --allow-target 127.0.0.0/8
clients() { python3 "$here/ranges.py" clients "127.0.0.1:$larder_port" "http://127.0.0.1:$origin_port/file" "$bytes"; }
verdict "ranges: all of the above" clients
summary
