#!/usr/bin/env bash
# PolyMix-4 through Larder, nginx and Squid, one after the other, and one report with all three.
#
#   bench/polymix.sh [OUT]      OUT: where results go, default bench/out
#
# Environment: LARDER (the program; default the release build, by `cargo build --release --features lab`), TIME (of all phases, 10m), RATE (2000), FILL (4GB), DISK (2000, MiB of
# store), MEMORY (256, MiB), THINK (0ms), PROXIES ("larder nginx squid"), PEAK=1 (search for the peak rate besides), LIMIT (50ms),
# WORK (scratch folder on the disk to be measured, default a folder in /var/tmp). Needs Debian's nginx and squid, and root (they
# drop to their own users). Each proxy gets one worker; the load and the origin take the other processors.
#
# What decides how much a store of a size holds: the mean length for which Larder's index has room (8 KiB unless told; PolyMix' is
# 10.7 KB); NGINX_DISK (DISK), what nginx is told, of which it takes an eighth more while much is stored; SLOT (16384, Squid's own
# default), bytes of a slot, of which an object takes whole ones. The report says what each took of the disk.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-bench/out}
larder=${LARDER:-${CARGO_TARGET_DIR:-target}/release/larder}
"$larder" bench --help >/dev/null # fails at once, and says why, without the feature lab
work=${WORK:-$(mktemp -d /var/tmp/polymix.XXXXXX)}
time=${TIME:-10m} rate=${RATE:-2000} fill=${FILL:-4GB} disk=${DISK:-2000} memory=${MEMORY:-256} think=${THINK:-0ms}
nginx_disk=${NGINX_DISK:-$disk} slot=${SLOT:-16384}
origin_port=${ORIGIN_PORT:-18081} port=${PORT:-18080}
mkdir -p "$out" "$work"
out=$(realpath "$out")
chmod 755 "$work"
pid=

stop() {
  if [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; then
    kill -TERM "$pid"
    for _ in $(seq 1 300); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -KILL "$pid" 2>/dev/null || true
  fi
  pid=
}
trap 'stop; rm -rf "$work"' EXIT

start_larder() {
  "$larder" run --listen "127.0.0.1:$port" --origin "http://127.0.0.1:$origin_port" --disk "$work/store" --size "${disk}MiB" \
    --memory-cache "${memory}MiB" --workers 1 >"$out/larder.log" 2>&1 </dev/null &
  pid=$!
}

start_nginx() {
  # Files that are kept open count as much as connections: of each at most a quarter.
  local files; files=$(ulimit -n)
  cat > "$work/nginx.conf" <<C
user root; daemon off; worker_processes 1;
pid $work/nginx.pid; error_log $out/nginx.log crit;
events { worker_connections 16384; multi_accept on; }
http {
  access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; aio threads;
  keepalive_timeout 300s; keepalive_requests 1000000000;
  open_file_cache max=$((files / 4)) inactive=60s; open_file_cache_valid 60s;
  client_body_temp_path $work/body; proxy_temp_path $work/ptemp; fastcgi_temp_path $work/f; uwsgi_temp_path $work/u; scgi_temp_path $work/s;
  proxy_cache_path $work/cache levels=1:2 keys_zone=c:200m max_size=${nginx_disk}m inactive=7d use_temp_path=off
                   manager_files=1000 manager_threshold=500ms manager_sleep=100ms;
  upstream origin { server 127.0.0.1:$origin_port; keepalive 128; keepalive_requests 1000000000; keepalive_timeout 300s; }
  server {
    listen 127.0.0.1:$port backlog=4096;
    location / {
      proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host \$host;
      proxy_cache c; proxy_cache_key \$request_uri; proxy_cache_lock on; proxy_cache_revalidate on;
      proxy_cache_bypass \$http_cache_control;
      proxy_buffers 16 16k; proxy_buffer_size 8k; proxy_max_temp_file_size 4096m;
    }
  }
}
C
  /usr/sbin/nginx -e "$out/nginx.log" -p "$work" -c "$work/nginx.conf" >/dev/null 2>&1 </dev/null &
  pid=$!
}

start_squid() {
  mkdir -p "$work/squid"
  cat > "$work/squid.conf" <<C
workers 1
http_port 127.0.0.1:$port accel defaultsite=bench.test
cache_peer 127.0.0.1 parent $origin_port 0 no-query no-digest no-netdb-exchange originserver name=o
http_access allow all
never_direct allow all
cache_effective_user proxy
pid_filename $work/squid/pid
access_log none
cache_store_log none
cache_log $work/squid/cache.log
debug_options ALL,0
coredump_dir $work/squid
pinger_enable off
netdb_filename none
digest_generation off
client_db off
icp_port 0
half_closed_clients off
shutdown_lifetime 1 seconds
max_filedescriptors $(ulimit -n)
client_idle_pconn_timeout 5 minutes
server_idle_pconn_timeout 5 minutes
quick_abort_min -1 KB
maximum_object_size 1 GB
maximum_object_size_in_memory 1 MB
cache_mem $memory MB
memory_cache_mode always
memory_cache_shared off
collapsed_forwarding on
read_ahead_gap 256 KB
cache_dir rock $work/squid/rock $disk slot-size=$slot max-size=1000000000
C
  chown -R proxy "$work/squid"
  squid -N -z -n "pm$port" -f "$work/squid.conf" >"$out/squid.log" 2>&1 </dev/null
  rm -f "$work/squid/pid"
  squid -N -n "pm$port" -f "$work/squid.conf" >>"$out/squid.log" 2>&1 </dev/null &
  pid=$!
}

version() {
  case $1 in
    larder) "$larder" --version ;;
    nginx) /usr/sbin/nginx -v 2>&1 | sed 's/.*: //' ;;
    squid) squid -v | head -1 | sed 's/Squid Cache: Version/squid/' ;;
  esac
}

wait_ready() {
  for _ in $(seq 1 300); do
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then return 0; fi
    kill -0 "$pid" 2>/dev/null || { echo "$1 ended at once; see $out/$1.log" >&2; return 1; }
    sleep 0.1
  done
  echo "$1 does not listen" >&2
  return 1
}

store() {
  case $1 in
    larder) echo "$work/store" ;;
    nginx) echo "$work/cache" ;;
    squid) echo "$work/squid/rock" ;;
  esac
}

# measure NAME FILE FLAGS..: a proxy whose answers were wrong stands in the report with them.
measure() {
  local name=$1 file=$2
  shift 2
  rm -f "$file"
  "$larder" bench --workload polymix-4 --reverse "http://127.0.0.1:$port" --origin-listen "127.0.0.1:$origin_port" --think "$think" \
    --scratch "$work" --pid "$pid" --store "$(store "$name")" --name "$(version "$name")" --rate "$rate" --json "$file" "$@" || [ -s "$file" ]
}

results=() peaks=()
ulimit -n "$(ulimit -Hn)" 2>/dev/null || true
for name in ${PROXIES:-larder nginx squid}; do
  for kind in run ${PEAK:+peak}; do
    rm -rf "$work"/*
    "start_$name"
    wait_ready "$name"
    # Squid listens before it is done with its store, and answers 502 for a second.
    sleep 3
    if [ $kind = run ]; then
      measure "$name" "$out/$name.json" --time "$time" --fill "$fill"
      results+=("$out/$name.json")
    else
      measure "$name" "$out/$name-peak.json" --peak --limit "${LIMIT:-50ms}" --step "${STEP:-20s}" --fill "$fill"
      peaks+=("$out/$name-peak.json")
    fi
    stop
  done
done
"$larder" bench report "${results[@]}" --html "$out/polymix.html"
if [ ${#peaks[@]} -gt 0 ]; then "$larder" bench report "${peaks[@]}" --html "$out/peak.html"; fi
echo "report: $out/polymix.html"
