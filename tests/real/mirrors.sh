#!/usr/bin/env bash
# Package registries by mirror, with real clients and the real servers: an empty Larder, a warm one, and a warm one with the line cut.
#
#   tests/real/mirrors.sh            needs a release build, and the clients: pip, npm, cargo, go, mvn (those that are there are tried)
#
# Each client begins each time with an empty cache of its own. What is asked for: with what is stored nothing of what never changes
# crosses the line again, and with the line cut (a network namespace in which there is only loopback; needs root) it works as well.

source "$(dirname "$0")/stage.sh"
need curl:curl python3:python3 ip:iproute2
unset PIP_FIND_LINKS PIP_INDEX_URL GOFLAGS

pip_job() { pip download -q --no-cache-dir --no-deps --trusted-host 127.0.0.1 --index-url "$1/pypi/simple/" -d "$2" six==1.16.0 requests==2.32.3; }
npm_job() {
  echo '{"name":"x","version":"1.0.0"}' > "$2/package.json"
  (cd "$2" && npm install --silent --no-audit --no-fund --cache "$2/cache" --registry "$1/npm/" express@4.21.2)
}
cargo_job() {
  mkdir -p "$2/home" "$2/src"
  echo 'fn main() {}' > "$2/src/main.rs"
  printf '[package]\nname = "x"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nserde_json = "=1.0.128"\n' > "$2/Cargo.toml"
  printf '[source.crates-io]\nreplace-with = "larder"\n[source.larder]\nregistry = "sparse+%s/cargo/"\n' "$1" > "$2/home/config.toml"
  (cd "$2" && CARGO_HOME="$2/home" cargo fetch -q)
}
go_job() {
  printf 'module x\ngo 1.21\nrequire github.com/google/uuid v1.6.0\n' > "$2/go.mod"
  (cd "$2" && GOPATH="$2/path" GOPROXY="$1/go" GOSUMDB=off GOFLAGS="-mod=mod -modcacherw" go mod download github.com/google/uuid)
}
mvn_job() {
  printf '<settings><mirrors><mirror><id>larder</id><mirrorOf>*</mirrorOf><url>%s/maven</url></mirror></mirrors></settings>' "$1" > "$2/settings.xml"
  (cd "$2" && mvn -q -s settings.xml -Dmaven.repo.local="$2/repository" dependency:get -Dartifact=junit:junit:4.13.2)
}

pairs=()
for pair in pip:pypi npm:npm cargo:cargo go:go mvn:maven; do
  if command -v "${pair%%:*}" >/dev/null; then pairs+=("$pair"); else echo "no ${pair%%:*} here: left out"; fi
done

# start NAME: a Larder with all mirrors on the one store
start() {
  admin_port=$(free_port)
  launch "$1" --disk "$stage/store" --size 1GB --admin "$admin_port" --mirror pypi,npm,cargo,go,maven
}

# round NAME PREFIX...: every client once; PREFIX runs a command where the client and Larder are
round() {
  local name=$1; shift
  local pair client before_requests before_origin started
  for pair in "${pairs[@]}"; do
    client=${pair%%:*}
    mkdir -p "$stage/$name-$client"
    before_requests=$(within "$@" figure larder_requests_total)
    before_origin=$(within "$@" figure larder_origin_requests_total)
    started=$(date +%s%N)
    if within "$@" "${client}_job" "http://127.0.0.1:$larder_port" "$stage/$name-$client" > "$stage/$name-$client.log" 2>&1; then
      pass "$name: $client"
    else
      fail "$name: $client"
      tail -3 "$stage/$name-$client.log"
    fi
    printf '%s %s %s %s %s\n' "$client" "$name" \
      "$(( $(within "$@" figure larder_requests_total) - before_requests ))" \
      "$(( $(within "$@" figure larder_origin_requests_total) - before_origin ))" \
      "$(( ($(date +%s%N) - started) / 1000000 ))" >> "$stage/table"
  done
}

# within PREFIX... COMMAND ARGUMENT...: a command or function of this script, behind a prefix if there is one
within() {
  if [ "$1" = here ]; then shift; "$@"; return; fi
  local namespace=$1; shift
  export -f pip_job npm_job cargo_job go_job mvn_job figure
  export admin_port
  ip netns exec "$namespace" bash -c '"$@"' within "$@"
}

start empty
round empty here
round warm here
end TERM "$larder_pid"

if namespace="larder-cut-$$" && ip netns add "$namespace" 2>/dev/null; then
  trap 'clean_up; ip netns del "$namespace"' EXIT
  ip netns exec "$namespace" ip link set lo up
  bin=$LARDER_BIN
  printf '#!/bin/sh\nexec ip netns exec %s %s "$@"\n' "$namespace" "$bin" > "$stage/cut-larder"
  chmod +x "$stage/cut-larder"
  LARDER_BIN=$stage/cut-larder start cut
  round cut "$namespace"
  end TERM "$larder_pid"
else
  echo "no network namespace can be made here (root?): the cut line is not tried"
fi

echo
printf '%-8s %-6s %9s %10s %9s\n' client larder requests 'to origin' ms
while read -r client name requests origin ms; do printf '%-8s %-6s %9s %10s %9s\n' "$client" "$name" "$requests" "$origin" "$ms"; done < "$stage/table"
echo
while read -r client name requests origin ms; do
  [ "$name" = warm ] && verdict "warm: $client asked for something, and nothing of it crossed the line" [ "$requests" -gt 0 -a "$origin" -eq 0 ]
done < "$stage/table"
summary
