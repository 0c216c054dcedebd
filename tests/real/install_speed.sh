#!/usr/bin/env bash
# The time that installs take: straight from the registry, by `larder exec`, and by a mirror, in turns, with the cache warm.
#
#   tests/real/install_speed.sh                 npm and cargo, five rounds
#   ROUNDS=9 tests/real/install_speed.sh npm
#   DELAY_MS=50 tests/real/install_speed.sh     with a registry that is a round trip of 50 ms away
#
# With a delay, clients reach the registry through a proxy that delays (delay_proxy.py), and so does Larder; they reach
# Larder without. Every install begins with an empty cache of the client's own. npm installs what NPM_PACKAGES names,
# cargo fetches the crates of this project's Cargo.lock.
#
# Passes if neither way by Larder takes longer than straight from the registry by more than a tenth. With fast clients, a
# distant registry makes a greater difference; on two cores, npm and cargo mostly unpack.

source "$(dirname "$0")/stage.sh"
need curl:curl python3:python3
clients=("$@")
[ ${#clients[@]} -gt 0 ] || clients=(npm cargo)
ROUNDS=${ROUNDS:-5}
NPM_PACKAGES=${NPM_PACKAGES:-webpack@5.91.0 jest@29.7.0 eslint@8.57.0 create-react-app@5.0.1 typescript-eslint@7.7.0 vite@5.2.0 @angular/cli@17.3.0}
mkdir -p "$stage/run" && chmod 700 "$stage/run"
export XDG_RUNTIME_DIR=$stage/run

far=
if [ -n "${DELAY_MS:-}" ]; then
  far_port=$(free_port)
  python3 "$here/delay_proxy.py" "$far_port" "$DELAY_MS" &
  pids+=("$!")
  await 10 answers "$far_port"
  far=http://127.0.0.1:$far_port
fi

# --- what each client does in an empty folder, with the way to the registry in `mirror`, empty for its own

npm_prepare() {
  mkdir -p "$stage/npm-project"
  # shellcheck disable=SC2086 # several packages
  (cd "$stage/npm-project" && echo '{"name":"x","version":"1.0.0"}' > package.json &&
    npm install --silent --package-lock-only --cache "$stage/npm-prepare" $NPM_PACKAGES)
  echo "npm: $(grep -c '"node_modules/' "$stage/npm-project/package-lock.json") packages"
}
npm_install() {
  cp "$stage/npm-project/"*.json .
  npm ci --silent --ignore-scripts --cache "$PWD/cache" ${mirror:+--registry "$mirror/npm/"}
}
cargo_prepare() {
  mkdir -p "$stage/cargo-project"
  (cd "$root" && git archive HEAD | tar x -C "$stage/cargo-project")
  echo "cargo: $(grep -c '^source = "registry' "$stage/cargo-project/Cargo.lock") crates"
}
cargo_install() {
  mkdir home
  [ -z "$mirror" ] || printf '[source.crates-io]\nreplace-with = "larder"\n[source.larder]\nregistry = "sparse+%s/cargo/"\n' "$mirror" > home/config.toml
  local folder=$PWD
  (cd "$stage/cargo-project" && CARGO_HOME=$folder/home cargo fetch -q --locked)
}

# --- how it is measured

# timed CLIENT WAY ROUND: runs one install and notes how many seconds it took
timed() {
  local client=$1 way=$2 folder=$stage/$1-$2-$3 began code
  local run=(bash -c "${client}_install")
  mkdir "$folder"
  export mirror=
  [ "$way" = mirror ] && mirror=http://127.0.0.1:$larder_port
  [ "$way" = direct ] && [ -n "$far" ] && run=(env "https_proxy=$far" "HTTPS_PROXY=$far" "CARGO_HTTP_PROXY=$far" "${run[@]}")
  [ "$way" = exec ] && run=("$LARDER_BIN" exec -- "${run[@]}")
  began=$EPOCHREALTIME
  (cd "$folder" && "${run[@]}") > "$folder.log" 2>&1
  code=$?
  if [ "$code" -ne 0 ]; then fail "$client $way $3: exit code $code"; tail -5 "$folder.log"; fi
  # The first round by each way warms the cache.
  [ "$3" = 0 ] || echo "$client $way $(awk -v from="$began" -v to="$EPOCHREALTIME" 'BEGIN { print to - from }')" >> "$stage/times"
  rm -rf "$folder"
}

median() { awk -v client="$1" -v way="$2" '$1 == client && $2 == way { print $3 }' "$stage/times" | sort -n | awk '{ all[NR] = $1 } END { print (all[int((NR + 1) / 2)] + all[int(NR / 2) + 1]) / 2 }'; }
share() { awk -v part="$1" -v whole="$2" 'BEGIN { printf "%.2f", part / whole }'; }

export -f npm_install cargo_install
export stage root
launch larder --disk "$stage/store" --size 4GB --mirror npm,cargo ${far:+--parent "$far"}
for client in "${clients[@]}"; do
  "${client}_prepare"
  for round in $(seq 0 "$ROUNDS"); do
    for way in direct exec mirror; do timed "$client" "$way" "$round"; done
  done
done

echo
printf '%-6s %8s %14s %14s   medians of %s, seconds (share of direct)\n' client direct exec mirror "$ROUNDS"
most=1.1
for client in "${clients[@]}"; do
  direct=$(median "$client" direct)
  by_exec=$(median "$client" exec) by_mirror=$(median "$client" mirror)
  printf '%-6s %8.2f %8.2f (%s) %8.2f (%s)\n' "$client" "$direct" "$by_exec" "$(share "$by_exec" "$direct")" \
    "$by_mirror" "$(share "$by_mirror" "$direct")"
done
echo
for client in "${clients[@]}"; do
  direct=$(median "$client" direct)
  for way in exec mirror; do
    verdict "$client, $way: at most $most of the time of a direct install" at_most "$(share "$(median "$client" "$way")" "$direct")" "$most"
  done
done
summary
