#!/usr/bin/env bash
# Real clients through the real program: curl, wget, two browsers, apt, pip, npm, HTTPS through CONNECT, reverse mode,
# HTTP/1.0, the libraries of Go, Java, Node, Perl and Python, WebSocket, server-sent events and gRPC.
# Each case proves with the origin's own log that the second time came from the cache.
#
#   tests/real/run.sh                 all cases
#   tests/real/run.sh wget apt        these cases
#
# Needs the release build (or LARDER_BIN). Prints PASS / FAIL lines, then a summary; exits 0 only if all passed.
# KEEP=1 keeps the scratch folder with all logs.
. "$(dirname "$0")/stage.sh"
. "$here/origin.sh"

need curl:curl nginx:nginx-light openssl:openssl python3:python3 wget:wget chromium:chromium apt-get:apt \
  dpkg-deb:dpkg apt-ftparchive:apt-utils pip:python3-pip npm:npm node:nodejs firefox-esr:firefox-esr ab:apache2-utils \
  go:golang-go java:default-jdk-headless perl:perl
/usr/bin/python3 -c 'import grpc, websockets' 2>/dev/null || {
  echo "missing; on Debian: apt-get install python3-grpcio python3-websockets" >&2
  exit 2
}

start_origin
cat > "$stage/larder.toml" <<C
[store]
path = "$stage/store.larder"
size = "256MiB"
[forward]
allow_targets = ["127.0.0.0/8", "::1"]
connect_ports = [$origin_tls_port]
[log]
access = "$stage/access.log"
C
launch forward --config "$stage/larder.toml"
forward_pid=$larder_pid
proxy=http://127.0.0.1:$larder_port
echo "origin on $origin_port (TLS $origin_tls_port), larder on $larder_port, scratch $stage"

cases=("$@")
[ ${#cases[@]} -gt 0 ] || cases=(curl wget browser firefox apt connect reverse old languages streams packages)
for case in "${cases[@]}"; do
  [ -f "$here/cases/$case.sh" ] || { echo "no case called $case" >&2; exit 2; }
  echo
  echo "--- $case"
  . "$here/cases/$case.sh"
done

echo
kill -TERM "$forward_pid"
wait "$forward_pid"
verdict "larder stops with code 0 on SIGTERM" [ $? -eq 0 ]
verdict "larder wrote its access log" [ "$(wc -l < "$stage/access.log")" -gt 0 ]
summary
