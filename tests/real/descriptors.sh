#!/usr/bin/env bash
# Few open files: many slow clients must not keep others from their hits.
#
#   tests/real/descriptors.sh [FILES [SLOW]]
#
# Needs the release build (or LARDER_BIN). Prints the figures and PASS / FAIL lines.
. "$(dirname "$0")/stage.sh"
. "$here/origin.sh"

need curl:curl nginx:nginx-light openssl:openssl python3:python3
files=${1:-256} slow=${2:-400}
hits=199

start_origin
mkdir -p "$stage/www/page"
head -c 1000 /dev/urandom > "$stage/www/page/small"
head -c 5000000 /dev/urandom > "$stage/www/page/long"
printf '#!/bin/sh\nulimit -n %s\nexec %s "$@"\n' "$files" "$LARDER_BIN" > "$stage/limited"
chmod +x "$stage/limited"
LARDER_BIN=$stage/limited
launch few --disk none --memory-cache 16MB --origin "http://127.0.0.1:$origin_port"
for kind in silent heads readers; do
  python3 "$here/descriptors.py" "$larder_port" "$kind" "$slow" "$hits" | tee "$stage/figures"
  verdict "all hits are served beside $slow slow clients: $kind" grep -q "^hits: $hits of $hits" "$stage/figures"
done
summary
