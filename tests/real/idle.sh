#!/usr/bin/env bash
# Ten thousand idle clients and a thousand active ones: what they cost in memory, and that everybody is answered.
#
#   tests/real/idle.sh [IDLE [ACTIVE]]
#
# Needs the release build (or LARDER_BIN), and as many open files (ulimit -Hn). Prints the figures and PASS / FAIL lines.
. "$(dirname "$0")/stage.sh"
. "$here/origin.sh"

need curl:curl nginx:nginx-light openssl:openssl python3:python3
idle=${1:-10000} active=${2:-1000}
# What a connection may keep on which nothing moves, in KiB; docs/explanation/semantics.md promises it.
kib_max=2
ulimit -n "$(ulimit -Hn)"

start_origin
mkdir -p "$stage/www/page"
head -c 1000 /dev/urandom > "$stage/www/page/small"
launch reverse --disk none --memory-cache 16MB --origin "http://127.0.0.1:$origin_port"
python3 "$here/idle.py" "$larder_port" "$larder_pid" "$idle" "$active" | tee "$stage/figures"
told() { sed -n "s/^KiB $1 connection, $2: \([0-9.]*\).*/\1/p" "$stage/figures"; }
for what in 'an unused' 'a used idle'; do
  for when in 'at once' 'after a second'; do
    kib=$(told "$what" "$when")
    verdict "$what connection takes at most $kib_max KiB $when" at_most "${kib:-999999}" "$kib_max"
  done
done
verdict "all idle connections were answered before" grep -q "^answered before: $idle of $idle" "$stage/figures"
verdict "all active requests are answered" grep -q "^answered: $active of $active" "$stage/figures"
summary
