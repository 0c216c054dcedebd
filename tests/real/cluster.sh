#!/usr/bin/env bash
# Three Larders that share a load behind a balancer, with the configuration that `larder cluster config` writes, and
# behind a Larder of their own, and as siblings without a balancer: each URL is fetched once, whichever of its spellings is requested; a node that is killed
# or restarted loses no request; when it is back nothing is fetched again; a fourth node takes its share; no byte is
# wrong. Then three nodes of a fleet without a balancer: a purge of 100,000 responses reaches the nodes that run, and one
# that was killed before it.
#
#   tests/real/cluster.sh                     haproxy, nginx, edge, siblings, and envoy if ENVOY is a program
#   FRONTS="haproxy" tests/real/cluster.sh    only this one
#   FRONTS="purges" tests/real/cluster.sh     only the purges
#   FRONTS="redis nats" tests/real/cluster.sh the purges by Redis Streams and by NATS JetStream, which restart meanwhile;
#                                             also rediss (TLS) and redis+sentinel. Needs the features log-redis, log-nats
#   ENVOY=/path/to/envoy tests/real/cluster.sh
. "$(dirname "$0")/stage.sh"
PATH=$PATH:/usr/sbin
case "${FRONTS:-}" in
  purges | siblings) need python3:python3 curl:curl ;;
  *redis* | *nats*) need python3:python3 curl:curl openssl:openssl redis-server:redis-server nats-server:nats-server ;;
  *) need python3:python3 curl:curl haproxy:haproxy nginx:nginx ;;
esac
ENVOY=${ENVOY:-$(command -v envoy || true)}
fronts=${FRONTS:-haproxy nginx edge siblings ${ENVOY:+envoy} purges}
client="$here/cluster.py"
export HOME=$stage XDG_RUNTIME_DIR=$stage/run
mkdir -p -m 0700 "$XDG_RUNTIME_DIR"

origin=$(free_port)
python3 "$client" origin "$origin" &
pids+=("$!")
await 10 answers "$origin" || { echo "the origin did not start" >&2; exit 1; }

cat > "$stage/key.toml" <<T
ready_path = "/-/ready"
drain_notice = "3s"
trusted_proxies = ["127.0.0.0/8"]
[[key]]
urls = ["http://www.example.test"]
strip = ["utm_*"]
T

fetches() { curl -sS "http://127.0.0.1:$origin/count" | python3 -c 'import json, sys; print(json.load(sys.stdin)["fetches"])'; }
reset() { curl -sS "http://127.0.0.1:$origin/reset" >/dev/null; }
request() { python3 "$client" load "$front_port" "$@"; }
# right JSON: no request failed and no byte was wrong
right() { [ "$(field "$1" failed)" -eq 0 ] && [ "$(field "$1" wrong)" -eq 0 ] || { echo "$1" >&2; return 1; }; }
is_ready() { [ "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$1/-/ready")" = 200 ]; }
works() { [ "$(curl -s -o /dev/null -m 2 -w '%{http_code}' -H 'Host: www.example.test' "http://127.0.0.1:${front_port%%,*}/works")" = 200 ]; }

# node NAME: starts a node, with the store that it had before
node() {
  local config=$stage/key.toml
  [ "$front" = siblings ] && config=$stage/node-$1.toml
  LISTEN_PORT=${port[$1]} launch "$front-$1" --config "$config" --disk "$stage/$front-$1.larder" --size 256MiB \
    --memory-cache 8MB --workers 1 --origin "http://127.0.0.1:$origin"
  node_pid[$1]=$larder_pid
  await 20 is_ready "${port[$1]}" || { echo "node $1 is not ready" >&2; exit 1; }
}

# siblings NAME...: writes the configuration of each of these nodes, in which all of them are siblings
siblings() {
  local name nodes=()
  (umask 077; echo "the secret of all nodes" > "$stage/siblings.secret")
  for name; do nodes+=("\"$name=127.0.0.1:${port[$name]}\""); done
  for name; do
    { echo "node = \"$name\""; cat "$stage/key.toml"; } > "$stage/node-$name.toml"
    cat >> "$stage/node-$name.toml" <<T
[fleet]
nodes = [$(IFS=,; echo "${nodes[*]}")]
secret_file = "$stage/siblings.secret"
siblings = true
T
    "$LARDER_BIN" config check "$stage/node-$name.toml" >/dev/null || return 1
  done
  front_port=$(for name; do echo "${port[$name]}"; done | paste -sd,)
}

# configure NAME...: writes the front's configuration for these nodes, and has the front's own program check it
configure() {
  if [ "$front" = siblings ]; then siblings "$@"; return; fi
  local name nodes=() urls=()
  for name; do
    nodes+=("$name=127.0.0.1:${port[$name]}")
    urls+=("{ url = \"http://127.0.0.1:${port[$name]}\" }")
  done
  local list; list=$(IFS=,; echo "${nodes[*]}")
  if [ "$front" = edge ]; then
    cat "$stage/key.toml" > "$stage/edge.toml"
    cat >> "$stage/edge.toml" <<T
[[site]]
paths = ["/"]
origins = [$(IFS=,; echo "${urls[*]}")]
balance = "consistent_hash"
max_fails = 1
fail_timeout = "2s"
check_path = "/-/ready"
check_interval = "1s"
T
    "$LARDER_BIN" config check "$stage/edge.toml" >/dev/null
    return
  fi
  "$LARDER_BIN" cluster config "$front" --config "$stage/key.toml" --nodes "$list" --listen "127.0.0.1:$front_port" \
    > "$stage/$front.conf" || return 1
  case $front in
    haproxy) haproxy -c -q -f "$stage/haproxy.conf" ;;
    nginx) nginx -t -q -e "$stage/nginx.log" -g "pid $stage/nginx.pid;" -c "$stage/nginx.conf" ;;
    envoy) cp "$stage/envoy.conf" "$stage/envoy.yaml"; "$ENVOY" --mode validate -l error -c "$stage/envoy.yaml" >/dev/null ;;
  esac
}

# start_front, reload_front: with the configuration written last
start_front() {
  if [ "$front" = siblings ]; then sleep 2; return; fi # until every node knows the purges of the others
  case $front in
    haproxy) haproxy -W -db -f "$stage/haproxy.conf" 2>"$stage/haproxy.log" & ;;
    nginx) nginx -e "$stage/nginx.log" -g "daemon off; pid $stage/nginx.pid;" -c "$stage/nginx.conf" & ;;
    envoy) "$ENVOY" -l error --use-dynamic-base-id -c "$stage/envoy.yaml" >"$stage/envoy.log" 2>&1 & ;;
    edge) LISTEN_PORT=$front_port launch edge --config "$stage/edge.toml" --disk none --memory-cache 0B --workers 1 ;;
  esac
  [ "$front" = edge ] && front_pid=$larder_pid || { front_pid=$!; pids+=("$front_pid"); }
  await 20 works || { echo "$front does not work" >&2; cat "$stage/$front.log" >&2; exit 1; }
  sleep 2 # until every node has passed its first health checks
}
reload_front() {
  local name
  case $front in
    haproxy) kill -USR2 "$front_pid"; sleep 2 ;;
    nginx | edge) kill -HUP "$front_pid"; sleep 2 ;;
    envoy) end TERM "$front_pid"; start_front; sleep 2 ;;
    siblings) for name in a b c; do kill -HUP "${node_pid[$name]}"; done; sleep 4 ;;
  esac
}

check_front() {
  declare -gA port node_pid
  local name told before extra again moved
  front_port=$(free_port)
  for name in a b c d; do port[$name]=$(free_port); done
  [ "$front" = siblings ] && siblings a b c
  for name in a b c; do node "$name"; done
  verdict "$front: the configuration is accepted" configure a b c
  start_front

  reset
  told=$(request --urls 1000 --repeat 3 --prefix plain)
  verdict "$front: 3,000 requests for 1,000 URLs are right" right "$told"
  verdict "$front: they took $(fetches) fetches" at_most "$(fetches)" 1010

  reset
  told=$(request --urls 500 --spellings --prefix spelled)
  verdict "$front: five spellings of 500 keys are right" right "$told"
  verdict "$front: they took $(fetches) fetches" at_most "$(fetches)" 505

  told=$(request --urls 2000 --prefix many)
  sleep 2 # what a crash may lose is the last second
  reset
  request --urls 2000 --prefix many --rate 400 --time 10 > "$stage/killed.json" &
  local load=$!
  sleep 3
  end KILL "${node_pid[b]}"
  wait "$load"
  told=$(cat "$stage/killed.json")
  extra=$(fetches)
  verdict "$front: of $(field "$told" requests) requests while a node is killed none fails ($extra extra fetches)" right "$told"

  node b
  sleep 4
  reset
  told=$(request --urls 2000 --prefix many)
  again=$(fetches)
  verdict "$front: 2,000 URLs are right when it is back" right "$told"
  verdict "$front: $again of them are fetched again" at_most "$again" 0

  reset
  request --urls 2000 --prefix many --rate 400 --time 12 > "$stage/restarted.json" &
  load=$!
  sleep 2
  end TERM "${node_pid[c]}"
  node c
  wait "$load"
  told=$(cat "$stage/restarted.json")
  verdict "$front: of $(field "$told" requests) requests while a node restarts none fails ($(fetches) extra fetches)" right "$told"

  sleep 4
  request --urls 2000 --prefix many >/dev/null
  configure a b c d
  node d
  reload_front
  reset
  told=$(request --urls 2000 --prefix many)
  moved=$(fetches)
  verdict "$front: 2,000 URLs are right with a fourth node" right "$told"
  # Rings of HAProxy and nginx are not exact; the owner of a key is.
  local share=31; [[ "$front" = edge || "$front" = siblings ]] && share=27
  verdict "$front: $moved moved to it ($((moved / 20))%)" at_most "$moved" $((share * 20))

  [ "$front" = siblings ] || end TERM "$front_pid"
  for name in a b c d; do end KILL "${node_pid[$name]}"; done
}

# member NAME: starts a node of the fleet, with the store that it had before
member() {
  LISTEN_PORT=${port[$1]} launch "purges-$1" --config "$stage/fleet-$1.toml" --disk "$stage/purges-$1.larder" \
    --size 512MiB --memory-cache 8MB --workers 1 --origin "http://127.0.0.1:$origin" --admin "127.0.0.1:${admin[$1]}"
  node_pid[$1]=$larder_pid
}
# on NAME ARGUMENT...: requests to one node
on() { local name=$1; shift; python3 "$client" load "${port[$name]}" "$@"; }
# reads NAME METRIC: its value on a node
reads() { curl -sS "http://127.0.0.1:${admin[$1]}/metrics" | awk -v name="$2" '$1 == name { print $2 }'; }
is_sure() { [ "$(reads "$1" larder_fleet_purges_unsynced)" = 0 ]; }

# start_log: starts the program that keeps the shared log, with the entries that it had before
start_log() {
  mkdir -p "$stage/log-$front"
  local redis=(redis-server --bind 127.0.0.1 --dir "$stage/log-$front" --appendonly yes --appendfsync always --save '')
  case $front in
    redis) "${redis[@]}" --port "$log_port" >"$stage/$front.log" 2>&1 & ;;
    rediss)
      "${redis[@]}" --port 0 --tls-port "$log_port" --tls-auth-clients no --tls-cert-file "$stage/log.pem" \
        --tls-key-file "$stage/log.key" --tls-ca-cert-file "$stage/log.pem" >"$stage/$front.log" 2>&1 & ;;
    redis+sentinel) "${redis[@]}" --port "$sentinel_master_port" >"$stage/$front.log" 2>&1 & ;;
    nats) nats-server -a 127.0.0.1 -p "$log_port" -js -sd "$stage/log-nats" >"$stage/nats.log" 2>&1 & ;;
  esac
  log_pid=$!
  pids+=("$log_pid")
  await 10 answers "${sentinel_master_port:-$log_port}" || { echo "$front did not start" >&2; exit 1; }
}

# prepare_log: makes the certificate for TLS, which is its own CA, or starts a Sentinel
prepare_log() {
  log_port=$(free_port)
  sentinel_master_port=
  case $front in
    rediss)
      openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=log -addext subjectAltName=IP:127.0.0.1 \
        -addext basicConstraints=critical,CA:FALSE -keyout "$stage/log.key" -out "$stage/log.pem" 2>/dev/null
      export SSL_CERT_FILE=$stage/log.pem ;;
    redis+sentinel)
      sentinel_master_port=$(free_port)
      mkdir -p "$stage/sentinel"
      echo "sentinel monitor main 127.0.0.1 $sentinel_master_port 1" > "$stage/sentinel/sentinel.conf"
      redis-server "$stage/sentinel/sentinel.conf" --sentinel --bind 127.0.0.1 --port "$log_port" \
        --dir "$stage/sentinel" >"$stage/sentinel.log" 2>&1 &
      pids+=("$!")
      await 10 answers "$log_port" || { echo "the Sentinel did not start" >&2; exit 1; } ;;
  esac
}

# applied_within PREFIX: waits until a purge is applied on node b, and says the milliseconds that this took
applied_within() {
  local begun; begun=$(date +%s%N)
  await 10 is_stale b "$1"
  echo $((($(date +%s%N) - begun) / 1000000))
}
# is_stale NAME PREFIX: whether the first response of a prefix is no hit on a node
is_stale() {
  local status; status=$(curl -sSI -H 'Host: www.example.test' "http://127.0.0.1:${port[$1]}/$2/0/0.bin" | grep -i '^cache-status')
  [[ -n "$status" && "$status" != *"; hit"* ]]
}

check_purges() {
  declare -gA port admin node_pid
  local name nodes=() told begun by
  for name in a b c; do port[$name]=$(free_port); admin[$name]=$(free_port); nodes+=("\"$name=127.0.0.1:${port[$name]}\""); done
  (umask 077; echo "the secret of three nodes" > "$stage/fleet.secret")
  by="nodes = [$(IFS=,; echo "${nodes[*]}")]"
  if [ "$front" != purges ]; then
    prepare_log
    start_log
    by="log = \"$front://127.0.0.1:$log_port${sentinel_master_port:+/main}/larder-purges\""
  fi
  for name in a b c; do
    cat > "$stage/fleet-$name.toml" <<T
node = "$name"
[fleet]
$by
secret_file = "$stage/fleet.secret"
T
    member "$name"
  done
  for name in a b c; do await 20 is_sure "$name" || { echo "node $name does not read the others" >&2; exit 1; }; done
  on b --urls 20 --prefix purge >/dev/null
  on b --urls 20 --prefix again >/dev/null
  on c --urls 100000 --prefix purge >/dev/null
  on c --urls 1000 --prefix again >/dev/null
  on c --urls 1000 --prefix kept >/dev/null
  sleep 3 # what a crash may lose is the last second
  told=$(on c --urls 1000 --prefix kept)
  verdict "$front: $(field "$told" hits) of 1,000 are stored" at_least "$(field "$told" hits)" 990
  end KILL "${node_pid[c]}"
  "$LARDER_BIN" purge --admin "127.0.0.1:${admin[a]}" --tag purge >/dev/null
  begun=$(applied_within purge)
  verdict "$front: a live node has applied it within $begun ms" at_most "$begun" 1000
  told=$(on b --urls 20 --prefix purge)
  # The first one was fetched again.
  verdict "$front: $(field "$told" hits) of 20 responses are stale there" at_most "$(field "$told" hits)" 1
  [ "$front" = purges ] || check_log_restart
  member c
  told=$(on c --urls 100000 --prefix purge)
  verdict "$front: 100,000 responses are right on the node that was away" right "$told"
  verdict "$front: $(field "$told" hits) of them are stale" at_most "$(field "$told" hits)" 0
  verdict "$front: the node is sure" await 10 is_sure c
  if [ "$front" != purges ]; then
    told=$(on c --urls 1000 --prefix again)
    verdict "$front: $(field "$told" hits) of 1,000 purged around the restart are stale" at_most "$(field "$told" hits)" 0
  fi
  told=$(on c --urls 1000 --prefix kept)
  verdict "$front: $(field "$told" hits) of 1,000 that were not purged are hits" at_least "$(field "$told" hits)" 990
  for name in a b c; do end TERM "${node_pid[$name]}"; done
  [ "$front" = purges ] || end TERM "$log_pid"
}

# check_log_restart: kills the program that keeps the log, purges meanwhile, and starts the program again
check_log_restart() {
  local told begun
  end KILL "$log_pid"
  told=$("$LARDER_BIN" purge --admin "127.0.0.1:${admin[a]}" --tag again 2>&1)
  verdict "$front: a purge without the log is not acknowledged" [ $? -ne 0 ]
  echo "      $(tr '\n' ' ' <<< "$told")"
  told=$(on a --urls 20 --prefix again)
  verdict "$front: it is in effect on its node" at_most "$(field "$told" hits)" 0
  start_log
  begun=$(applied_within again)
  verdict "$front: a live node has applied it $begun ms after the log's return" at_most "$begun" 3000
  told=$(on b --urls 20 --prefix again)
  verdict "$front: $(field "$told" hits) of 20 responses are stale there" at_most "$(field "$told" hits)" 1
  verdict "$front: the nodes are sure again" await 10 is_sure b
}

for front in $fronts; do
  case $front in purges | redis* | nats) check_purges ;; *) check_front ;; esac
done
summary
