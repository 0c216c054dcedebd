#!/usr/bin/env bash
# Package managers under `larder exec`, against the registries that this machine's own configuration names: pip, npm, cargo, go, maven, gradle,
# apt over https, curl, wget, java, Node's fetch, Perl's LWP, and git with the repository that GIT_URL names, or one of 20 MB on a server over TLS that is made here. Each runs
# with an empty cache of its own: without Larder, on an empty Larder, on a warm one, and on a warm one with --offline. Prints requests, what came
# from the cache, bytes from origins, the share of bytes that was saved, and wall time.
#
#   tests/real/package_managers.sh                                   all there are
#   tests/real/package_managers.sh pip npm                           some
#   LARDER_BIN=target/fast/larder tests/real/package_managers.sh
#
# The Larder has no [[rule]] of its own: `exec` knows the registries, also where they say nothing of freshness and give no validators.
#
# Passes if every client is content each time, with --offline too, and a warm Larder has 0 bytes of bodies from origins. From a repository of git it
# has the references, which are asked for each time, and no pack.
. "$(dirname "$0")/stage.sh"
need curl:curl
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(pip uv npm yarn pnpm cargo go maven gradle apt git curl wget java node perl)
mkdir -p "$stage/run" && chmod 700 "$stage/run"
export XDG_RUNTIME_DIR=$stage/run
npm_registry=$(npm config get registry 2>/dev/null)
# said NAME: the first value of a field of apt's sources
said() { sed -nE "s/^$1: *([^ ]+).*/\1/p" /etc/apt/sources.list.d/*.sources 2>/dev/null | head -1; }
apt_base=$(said URIs | sed 's/^http:/https:/')
apt_suite=$(said Suites)

# --- what each client does, with nothing in its own cache, in the directory it is in

pip_run() { env -u PIP_FIND_LINKS python3 -m pip -q download --no-cache-dir --disable-pip-version-check -d out "requests==2.32.3" "jinja2==3.1.4"; }
npm_run() { npm_config_cache=$PWD/cache npm install --no-audit --no-fund --loglevel=error express@4.19.2; }
cargo_run() {
  mkdir -p home src && cp ~/.cargo/config* home/ 2>/dev/null
  printf '[package]\nname = "x"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nserde_json = "=1.0.120"\n' > Cargo.toml
  : > src/lib.rs
  CARGO_HOME=$PWD/home cargo -q fetch
}
go_run() {
  printf 'module x\ngo 1.20\nrequire golang.org/x/text v0.14.0\nrequire golang.org/x/net v0.20.0\n' > go.mod
  GOMODCACHE=$PWD/mod GOFLAGS=-modcacherw go mod download
}
git_run() { git clone -q "$GIT_URL" clone; }
maven_run() { mvn -q -B -Dmaven.repo.local="$PWD/repository" dependency:get -Dartifact=junit:junit:4.13.2; }
gradle_run() {
  printf 'repositories { mavenCentral() }\nconfigurations { fetched }\ndependencies { fetched "junit:junit:4.13.2" }\n' > build.gradle
  printf 'task fetch { doLast { configurations.fetched.files.each { println it.name } } }\n' >> build.gradle
  : > settings.gradle
  GRADLE_USER_HOME=$PWD/home gradle -q --no-daemon fetch
}
apt_run() {
  mkdir -p lists/partial cache/archives/partial
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $apt_base $apt_suite main" > sources.list
  local options=(-qq -o APT::Sandbox::User=root -o Dir::Etc::sourcelist="$PWD/sources.list" -o Dir::Etc::sourceparts=-
    -o Dir::State::lists="$PWD/lists" -o Dir::Cache="$PWD/cache")
  apt-get "${options[@]}" update && apt-get "${options[@]}" download hello
}
curl_run() { curl -fsS -o 1 "${npm_registry}left-pad" && curl -fsS -o 2 "${npm_registry}left-pad/-/left-pad-1.3.0.tgz"; }
uv_run() { UV_CACHE_DIR=$PWD/cache uv -q pip install --target out "requests==2.32.3" "jinja2==3.1.4"; }
yarn_run() { echo '{"dependencies":{"express":"4.19.2"}}' > package.json && yarn install --silent --no-lockfile --cache-folder "$PWD/cache"; }
pnpm_run() { echo '{"dependencies":{"express":"4.19.2"}}' > package.json && pnpm install --silent --store-dir "$PWD/store" --config.cache-dir="$PWD/cache"; }
wget_run() { wget -q -O 1 "${npm_registry}left-pad" && wget -q -O 2 "${npm_registry}left-pad/-/left-pad-1.3.0.tgz"; }
node_run() {
  node -e 'const get = async () => { for (const url of process.argv.slice(1)) { const response = await fetch(url); await response.arrayBuffer();
    if (!response.ok) throw new Error(response.status); } }; get().catch((error) => { console.error(error); process.exit(1); })' \
    "${npm_registry}left-pad" "${npm_registry}left-pad/-/left-pad-1.3.0.tgz"
}
perl_run() {
  perl -MLWP::UserAgent -e 'for (@ARGV) { my $r = LWP::UserAgent->new->get($_); die $r->status_line unless $r->is_success }' \
    "${npm_registry}left-pad" "${npm_registry}left-pad/-/left-pad-1.3.0.tgz"
}
java_run() {
  cat > Get.java <<'J'
import java.net.URI;
public class Get { public static void main(String[] urls) throws Exception {
  for (String url : urls) try (var in = URI.create(url).toURL().openStream()) { in.transferTo(java.io.OutputStream.nullOutputStream()); }
} }
J
  java Get.java "${npm_registry}left-pad" "${npm_registry}left-pad/-/left-pad-1.3.0.tgz"
}

# --- how it is measured

declare -A tool=([pip]=python3 [uv]=uv [npm]=npm [yarn]=yarn [pnpm]=pnpm [wget]=wget [node]=node [perl]=perl [cargo]=cargo [go]=go [maven]=mvn [gradle]=gradle [apt]=apt-get [git]=git [curl]=curl [java]=java)

# told JSON FIELD
told() { sed -nE "s/.*\"$2\":([0-9.]+).*/\1/p" <<< "$1"; }

row() { printf '%-6s %-8s %9s %11s %13s %7s %9s\n' "$@"; }

# as_script NAME: what its client does, as a script that needs nothing of this one
as_script() {
  declare -f "$1_run"
  echo "npm_registry=$npm_registry GIT_URL=${GIT_URL:-} apt_base=$apt_base apt_suite=$apt_suite; $1_run"
}

# direct NAME: runs a client once without Larder, for its wall time
direct() {
  local folder=$stage/$1-direct began=$EPOCHREALTIME
  mkdir -p "$folder"
  # The repository made here has no name that leads to it but through Larder.
  [ "$1" = git ] && [ -n "${git_port:-}" ] && export GIT_SSL_NO_VERIFY=1 && local GIT_URL=https://localhost:$git_port/tool.git
  (cd "$folder" && bash -c "$(as_script "$1")") > "$folder.out" 2> "$folder.err"
  verdicts+=("$1, direct: the client is content|$?|0")
  unset GIT_SSL_NO_VERIFY
  row "$1" direct - - - - "$(awk -v from="$began" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.2f", to - from }')"
}

# one NAME WHICH FLAG...: runs a client once; leaves its figures in `line` and `from_origins`
one() {
  local name=$1 which=$2 folder=$stage/$1-$2 code
  shift 2
  mkdir -p "$folder"
  (cd "$folder" && "$LARDER_BIN" exec --summary json "$@" -- bash -c "$(as_script "$name")") \
    > "$folder.out" 2> "$folder.err"
  code=$?
  line=$(grep -o '{"bypassed".*' "$folder.err" | tail -1)
  from_origins=$(($(told "$line" bytes) - $(told "$line" saved_bytes)))
  row "$name" "$which" "$(told "$line" requests)" "$(told "$line" from_cache)" "$from_origins" \
    "$(awk -v all="$(told "$line" bytes)" -v left="$from_origins" 'BEGIN { printf all ? "%.1f%%" : "-", all ? 100 * (1 - left / all) : 0 }')" "$(told "$line" seconds)"
  verdicts+=("$name, $which: the client is content|$code|0")
}

# A repository over TLS, whose authority only Larder knows.
start_git_server() {
  export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_TERMINAL_PROMPT=0
  local work=$stage/work count
  git init -q -b main "$work"
  for count in $(seq 20); do
    head -c 750000 /dev/urandom | base64 > "$work/file$count"
    git -C "$work" add . && git -C "$work" -c user.name=a -c user.email=a@example commit -q -m "commit $count"
  done
  mkdir "$stage/repositories" && git clone -q --bare "$work" "$stage/repositories/tool.git"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
    -addext basicConstraints=critical,CA:FALSE -keyout "$stage/git.key" -out "$stage/git.pem" 2>/dev/null
  git_port=$(free_port)
  python3 "$here/git_server.py" "$git_port" "$stage/repositories" "$stage/git.pem" "$stage/git.key" >"$stage/git.log" 2>&1 </dev/null &
  pids+=("$!")
  await 10 answers "$git_port"
  # What is on this machine is not reached through proxies: a name that a site of Larder's leads there.
  GIT_URL=https://git.example/tool.git
}

config=$stage/larder.toml
: > "$config"
if [ -z "${GIT_URL:-}" ] && [[ " ${names[*]} " = *" git "* ]]; then
  start_git_server
  printf 'origin_ca_file = "%s"\n[[site]]\nhosts = ["git.example"]\norigin = "https://localhost:%s"\n' "$stage/git.pem" "$git_port" > "$config"
fi
printf '[forward]\nenabled = true\nallow_targets = ["0.0.0.0/0", "::/0"]\n' >> "$config"
verdicts=()
echo
row name Larder requests "from cache" "origin bytes" saved "wall s"
for name in "${names[@]}"; do
  command -v "${tool[$name]}" > /dev/null || { echo "$name: not on this machine"; continue; }
  LISTEN_PORT=$(free_port) launch "$name" --config "$config" --disk "$stage/$name.larder" --size 1GB
  direct "$name"
  one "$name" empty; empty=$from_origins
  one "$name" warm
  most=0
  [ "$name" = git ] && most=$((empty / 100))
  verdicts+=("$name: a warm Larder has at most $most bytes from origins ($from_origins of $empty)|$((from_origins <= most))|1")
  one "$name" offline --offline
  kill -TERM "$larder_pid" && wait "$larder_pid" 2> /dev/null
done
echo
for each in "${verdicts[@]}"; do
  IFS='|' read -r name found wanted <<< "$each"
  verdict "$name" [ "$found" = "$wanted" ]
done
summary
