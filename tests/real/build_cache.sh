#!/usr/bin/env bash
# Build caches with the tools that use them: a second build takes everything from Larder, also after kill -9; a reader
# cannot write; content with a wrong digest is refused.
#
#   tests/real/build_cache.sh                            ccache, and sccache, turbo and bazel where they can be found
#   SCCACHE=/path/to/sccache tests/real/build_cache.sh   sccache with WebDAV (0.5 or later)
#   TURBO=/path/to/turbo tests/real/build_cache.sh       Turborepo (needs npm)
#   BAZEL=/path/to/bazel tests/real/build_cache.sh       Bazel, such as Debian's bazel-bootstrap
#   NGINX=/path/to/nginx tests/real/build_cache.sh       nginx in front, through which nobody writes
. "$(dirname "$0")/stage.sh"
need ccache:ccache gcc:gcc curl:curl python3:python3
SCCACHE=${SCCACHE:-$(command -v sccache || true)}
TURBO=${TURBO:-$(command -v turbo || true)}
BAZEL=${BAZEL:-$(command -v bazel || true)}
FILES=${FILES:-200}
export HOME=$stage XDG_RUNTIME_DIR=$stage/run
mkdir -p -m 0700 "$XDG_RUNTIME_DIR"
token=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
(umask 077; echo "write $token" > "$stage/tokens")
cat > "$stage/build.toml" <<T
[[build_cache]]
path = "/cache"
tokens = "$stage/tokens"
T
# start: starts larder with the store that it had before, and nothing behind it
start() {
  LISTEN_PORT=${port:-0} launch build --config "$stage/build.toml" --offline on --disk "$stage/store.larder" --size 1GiB --memory-cache 16MB
  port=$larder_port
}
start
url=http://127.0.0.1:$port/cache

# --- sources: some files are large enough that an object is longer than one chunk

mkdir "$stage/src"
for number in $(seq "$FILES"); do
  size=$(( number % 20 == 0 ? 2000000 : 1000 + number ))
  echo "char data_$number[$size] = {$number}; int f_$number(int x) { return x * $number + data_$number[x]; }" > "$stage/src/f$number.c"
done

# build FOLDER COMPILER...: compiles all sources into the folder
build() {
  local out=$1; shift
  rm -rf "$out"; mkdir "$out"
  seq "$FILES" | xargs -P 2 -I N "$@" -g0 -c "$stage/src/fN.c" -o "$out/fN.o"
}
# same FOLDER FOLDER: all objects are equal
same() { diff -rq "$1" "$2" >/dev/null && [ "$(ls "$1" | wc -l)" -eq "$FILES" ]; }
build "$stage/plain" gcc

# --- ccache

export CCACHE_CONFIGPATH=$stage/ccache.conf CCACHE_NOHASHDIR=1
: > "$CCACHE_CONFIGPATH"
# ccached FOLDER CREDENTIALS: builds with an empty local cache; sets hits, misses and errors of the remote one
ccached() {
  rm -rf "$stage/ccache"
  CCACHE_DIR=$stage/ccache CCACHE_REMOTE_STORAGE="$url/ccache|layout=bazel$2" build "$1" ccache gcc
  local stats; stats=$(CCACHE_DIR=$stage/ccache ccache --print-stats)
  stat() { awk -v name="$1" '$1 == name { print $2 }' <<<"$stats"; }
  hits=$(stat remote_storage_hit) misses=$(stat remote_storage_miss) errors=$(( $(stat remote_storage_error) + $(stat remote_storage_timeout) ))
}
ccached "$stage/reader" ""
verdict "ccache without a token: the build works and nothing is stored ($hits hits, $misses misses, $errors errors)" \
  [ "$hits" -eq 0 ] && same "$stage/reader" "$stage/plain"
ccached "$stage/first" "|bearer-token=$token"
verdict "ccache, first build: $hits hits, $misses misses, $errors errors" [ "$errors" -eq 0 ]
verdict "ccache, first build: the objects are gcc's" same "$stage/first" "$stage/plain"
ccached "$stage/second" ""
verdict "ccache, second build of a reader: $hits hits, $misses misses, $errors errors" [ "$misses" -eq 0 -a "$errors" -eq 0 -a "$hits" -ge "$FILES" ]
verdict "ccache, second build: the objects are gcc's" same "$stage/second" "$stage/plain"
expected=$hits

# --- kill -9, at once after a build of new sources

sed -i 's/return x/return 1 + x/' "$stage"/src/*.c
build "$stage/plain" gcc
ccached "$stage/third" "|bearer-token=$token"
end KILL "$larder_pid"
start
ccached "$stage/fourth" ""
verdict "ccache, after kill -9: $hits of $expected hits, $errors errors" at_least "$hits" "$expected"
verdict "ccache, after kill -9: the objects are gcc's" same "$stage/fourth" "$stage/plain"

# --- sccache

if [ -n "$SCCACHE" ] && grep -qa SCCACHE_WEBDAV "$SCCACHE"; then
  export SCCACHE_SERVER_PORT SCCACHE_WEBDAV_ENDPOINT=http://127.0.0.1:$port SCCACHE_WEBDAV_KEY_PREFIX=/cache/sccache SCCACHE_IDLE_TIMEOUT=0
  SCCACHE_SERVER_PORT=$(free_port)
  # sccached FOLDER: builds with a new server; sets hits and misses
  sccached() {
    "$SCCACHE" --start-server >/dev/null 2>&1
    build "$1" "$SCCACHE" gcc
    local stats; stats=$("$SCCACHE" --show-stats --stats-format json)
    "$SCCACHE" --stop-server >/dev/null 2>&1
    read -r hits misses errors < <(python3 -c '
import json, sys
stats = json.loads(sys.argv[1])["stats"]
count = lambda name: sum(stats[name]["counts"].values())
print(count("cache_hits"), count("cache_misses"), count("cache_errors") + stats["cache_write_errors"])' "$stats")
  }
  SCCACHE_WEBDAV_TOKEN=$token sccached "$stage/first"
  verdict "sccache, first build: $hits hits, $misses misses, $errors errors" [ "$misses" -eq "$FILES" -a "$errors" -eq 0 ]
  sccached "$stage/second"
  verdict "sccache, second build of a reader: $hits hits, $misses misses, $errors errors" [ "$hits" -eq "$FILES" -a "$errors" -eq 0 ]
  verdict "sccache, second build: the objects are gcc's" same "$stage/second" "$stage/plain"
  end KILL "$larder_pid"
  start
  sccached "$stage/third"
  verdict "sccache, after kill -9: $hits of $FILES hits" at_least "$hits" "$FILES"
else
  echo "SKIP  sccache: no program with WebDAV (0.5 or later); name one in SCCACHE"
fi

# --- Turborepo

if [ -n "$TURBO" ]; then
  mkdir -p "$stage/mono/app"
  cat > "$stage/mono/package.json" <<'T'
{ "name": "mono", "private": true, "packageManager": "npm@10.0.0", "workspaces": ["app"] }
T
  echo '{ "$schema": "https://turbo.build/schema.json", "tasks": { "build": { "outputs": ["out/**"] } } }' > "$stage/mono/turbo.json"
  echo '{ "name": "app", "version": "1.0.0", "scripts": { "build": "mkdir -p out && date +%N > out/result" } }' > "$stage/mono/app/package.json"
  echo '{ "name": "mono", "lockfileVersion": 3, "packages": { "": { "workspaces": ["app"] }, "app": { "version": "1.0.0" } } }' > "$stage/mono/package-lock.json"
  echo "update-notifier=false" > "$stage/mono/.npmrc"
  turbo() {
    rm -rf "$stage/mono/.turbo" "$stage/mono/app/.turbo" "$stage/mono/node_modules" "$stage/mono/app/out"
    (cd "$stage/mono" && TURBO_TELEMETRY_DISABLED=1 TURBO_API=$url TURBO_TEAM=team TURBO_TOKEN=$1 "$TURBO" run build --cache=remote:rw 2>&1)
  }
  first=$(turbo "$token"); made=$(cat "$stage/mono/app/out/result" 2>/dev/null)
  second=$(turbo "a reader"); found=$(cat "$stage/mono/app/out/result" 2>/dev/null)
  verdict "turbo: a reader gets what a writer built ($(grep -o 'Cached:.*' <<<"$second"))" [ -n "$made" -a "$made" = "$found" ]
  [ "$made" = "$found" ] || echo "$first $second" >&2
else
  echo "SKIP  turbo: name it in TURBO"
fi

# --- Bazel

if [ -n "$BAZEL" ]; then
  mkdir "$stage/targets"
  : > "$stage/targets/WORKSPACE"
  for number in $(seq "$FILES"); do
    echo "genrule(name = 'g$number', outs = ['o$number'], cmd = 'head -c $(( number * 1000 )) /dev/urandom > \$@')"
  done > "$stage/targets/BUILD"
  # bazeled FOLDER OPTION...: builds with an empty output folder; sets hits, and sums up the outputs
  bazeled() {
    local folder=$1; shift
    (cd "$stage/targets" && timeout 400 "$BAZEL" --batch --output_user_root="$folder" build //:all --remote_cache="$url/bazel" \
      --spawn_strategy=local --noshow_progress "$@" >"$folder.log" 2>&1 && cat bazel-bin/o* | sha256sum >"$folder.sum")
    hits=$(sed -n 's/.* \([0-9]*\) remote cache hit.*/\1/p' "$folder.log" | tail -1) hits=${hits:-0}
    chmod -R u+w "$folder" 2>/dev/null; rm -rf "$folder"
  }
  bazeled "$stage/bazel1" --remote_header=Authorization="Bearer $token"
  verdict "bazel, first build: $hits hits" [ "$hits" -eq 0 -a -s "$stage/bazel1.sum" ]
  bazeled "$stage/bazel2" --remote_upload_local_results=false
  verdict "bazel, second build of a reader: $hits hits" [ "$hits" -eq "$FILES" ]
  verdict "bazel, second build: the outputs are the same, although they are random" cmp -s "$stage/bazel1.sum" "$stage/bazel2.sum"
  end KILL "$larder_pid"
  start
  bazeled "$stage/bazel3" --remote_upload_local_results=false
  verdict "bazel, after kill -9: $hits of $FILES hits" [ $(( hits * 100 )) -ge $(( FILES * 99 )) ]
  [ -s "$stage/bazel3.sum" ] || tail -5 "$stage"/bazel*.log >&2
else
  echo "SKIP  bazel: name it in BAZEL"
fi

# --- content by digest, as Bazel sends it

head -c 5000000 /dev/urandom > "$stage/blob"
digest=$(sha256sum "$stage/blob" | cut -d' ' -f1)
send() { curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $token" -T "$1" "$url/cas/$2"; }
verdict "a blob with a wrong digest is refused" [ "$(send "$stage/blob" "$(printf '%064d' 0)")" = 400 ]
verdict "and not stored" [ "$(curl -s -o /dev/null -w '%{http_code}' "$url/cas/$(printf '%064d' 0)")" = 404 ]
verdict "a blob with the right digest is stored" [ "$(send "$stage/blob" "$digest")" = 201 ]
verdict "and comes back" [ "$(curl -s "$url/cas/$digest" | sha256sum | cut -d' ' -f1)" = "$digest" ]
end TERM "$larder_pid"

# --- behind nginx, as its manual shows a reverse proxy: nothing in its requests tells that it forwards them

NGINX=${NGINX:-$(command -v nginx || ls /usr/sbin/nginx 2>/dev/null || true)}
if [ -n "$NGINX" ]; then
  # fronted NAME FLAG...: starts larder with an empty build cache, and nginx in front of it; sets front and back
  fronted() {
    local name=$1; shift
    launch "$name" --disk none --memory-cache 16MB "$@"
    back=$larder_port front=$(free_port)
    mkdir "$stage/$name"
    cat > "$stage/$name/nginx.conf" <<T
daemon off; pid $stage/$name/pid; error_log $stage/$name/error.log;
events {}
http {
  access_log off; client_body_temp_path $stage/$name/body; proxy_temp_path $stage/$name/proxy;
  fastcgi_temp_path $stage/$name/f; uwsgi_temp_path $stage/$name/u; scgi_temp_path $stage/$name/s;
  server {
    listen 127.0.0.1:$front;
    location / { proxy_pass http://127.0.0.1:$back; }
  }
}
T
    "$NGINX" -c "$stage/$name/nginx.conf" 2>/dev/null & nginx_pid=$!
    for _ in $(seq 100); do (: </dev/tcp/127.0.0.1/$front) 2>/dev/null && break; sleep 0.1; done
  }
  # sent PORT: the status of a write
  sent() { curl -s -o /dev/null -w '%{http_code}' -T "$stage/blob" "http://127.0.0.1:$1/cache/x"; }
  printf '[[build_cache]]\npath = "/cache"\n' > "$stage/closed.toml"
  fronted closed --config "$stage/closed.toml"
  verdict "without tokens, nobody writes: through nginx $(sent "$front"), on the machine $(sent "$back")" \
    [ "$(sent "$front")" = 403 -a "$(sent "$back")" = 403 ]
  end TERM "$nginx_pid"; end TERM "$larder_pid"
  fronted flagged --build-cache
  if [ "$(id -u)" -eq 0 ]; then
    verdict "with --build-cache, nginx' own user does not write: $(sent "$front")" [ "$(sent "$front")" = 403 ]
  else
    echo "SKIP  nginx as another user: run this as root"
  fi
  verdict "with --build-cache, the user of larder writes: $(sent "$back")" [ "$(sent "$back")" = 204 ]
  end TERM "$nginx_pid"; end TERM "$larder_pid"
else
  echo "SKIP  nginx: install it, or name it in NGINX"
fi
summary
