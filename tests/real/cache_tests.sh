#!/usr/bin/env bash
# The public suite of cache-tests.fyi (npm package http-cache-tests 0.4.5) against larder as a reverse proxy.
#
#   tests/real/cache_tests.sh
#   CACHE_TESTS=/elsewhere/node_modules/http-cache-tests tests/real/cache_tests.sh
#
# Passes if every required and optimal test passes but those that docs/internals/cache-tests.md names with a reason, and those do not.
# Prints what does not pass, and counts by kind. The suite's Surrogate-Control is put on the list of targeted fields.
. "$(dirname "$0")/stage.sh"
need node:nodejs npm:npm python3:python3
suite=${CACHE_TESTS:-$stage/node_modules/http-cache-tests}
if [ ! -d "$suite" ]; then
  (cd "$stage" && npm install --no-audit --no-fund http-cache-tests@0.4.5) >"$stage/npm.log" 2>&1 </dev/null ||
    { cat "$stage/npm.log" >&2; exit 2; }
fi

origin_port=$(free_port)
export npm_package_config_protocol=http npm_package_config_port=$origin_port npm_package_config_id=
export npm_package_config_pidfile=$stage/origin.pid
cat >"$stage/larder.toml" <<TOML
[cache]
targeted_fields = ["Surrogate-Control", "CDN-Cache-Control"]
TOML
(cd "$suite" && exec node server/server.mjs) >"$stage/origin.log" 2>&1 </dev/null &
pids+=("$!")
await 30 grep -q Listening "$stage/origin.log"
launch cache-tests --config "$stage/larder.toml" --disk "$stage/store.larder" --size 256MB \
  --origin "http://127.0.0.1:$origin_port"
export npm_package_config_base=http://127.0.0.1:$larder_port
(cd "$suite" && timeout 900 node --no-warnings cli.mjs) >"$stage/results.json" 2>"$stage/cli.log" </dev/null

report() { node --no-warnings "$here/cache_tests.mjs" "$suite" "$stage/results.json" "$root/docs/internals/cache-tests.md"; }
verdict "cache-tests: what does not pass is what is named, with its reason" report
summary
