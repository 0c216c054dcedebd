#!/usr/bin/env bash
# Long bodies arrive whole, whatever else the store takes in.
#
#   tests/real/long_bodies.sh                 six bodies of 512 MB, then 573,000 small ones, then six hits; about 10 minutes
#   tests/real/long_bodies.sh --many          besides: 100 bodies of 64 MB to 1 GB over three turnovers of the store; hours
#   tests/real/long_bodies.sh --many --kill   and larder is killed (kill -9) and started again every KILL_S seconds meanwhile
#   STORE=900MB BODY_BYTES=50000000 SMALL=60000 tests/real/long_bodies.sh      a tenth of it
#
# Sizes: STORE (9GB), BODIES (6), BODY_BYTES (512 MB), SMALL (573000); of --many: MANY (100), LEAST and MOST (64 MB and 1 GB),
# TURNOVERS (3), KILL_S (60). POLICY (log); FLAGS are more flags for larder. The disk is where TMPDIR is.
# In the first part the origin has no validators and knows no ranges: what the store loses of a body cannot be had again, so
# that six of six hits mean that nothing was lost. Passes if every answer is whole and right, the first part's are hits, and
# larder itself counts no broken answer.
. "$(dirname "$0")/stage.sh"
need curl:curl python3:python3
many=0
kills=0
for flag in "$@"; do
  case $flag in
    --many) many=1 ;;
    --kill) kills=1 ;;
    *) sed -n '2,15p' "$0" | cut -c3- >&2; exit 2 ;;
  esac
done
size=${STORE:-9GB}
bodies=${BODIES:-6}
body_bytes=${BODY_BYTES:-512000000}
small=${SMALL:-573000}

client() { local what=$1; shift; python3 "$here/long_bodies.py" "$what" --port "$larder_port" "$@"; }
origin() {
  origin_port=$(free_port)
  python3 "$here/long_bodies.py" serve --port "$origin_port" "$@" >"$stage/origin.log" 2>&1 </dev/null &
  pids+=("$!")
  await 30 answers "$origin_port"
}
start() {
  admin_port=$(free_port)
  # shellcheck disable=SC2086
  launch "$1" --disk "$stage/$1.larder" --size "$size" --policy "${POLICY:-log}" --origin "http://127.0.0.1:$origin_port" \
    --allow-target 127.0.0.0/8 --admin "127.0.0.1:$admin_port" ${FLAGS:-}
}
tell_failures() { python3 -c 'import json, sys; [print("      " + line) for line in json.load(open(sys.argv[1]))["failures"]]' "$stage/$1.json"; }

origin
start long
numbers=$(seq -s, 1 "$bodies")
echo "storing $bodies bodies of $((body_bytes / 1000000)) MB in a store of $size"
client get --numbers "$numbers" --bytes "$body_bytes" > "$stage/stored.json"
verdict "long bodies: all arrive whole the first time" [ "$(saved stored broken)" -eq 0 ]
echo "storing $small small bodies"
client small --count "$small" > "$stage/small.json"
verdict "long bodies: the small ones arrive whole" [ "$(saved small wrong)$(saved small failed)" = 00 ]
echo "entries: $(figure larder_store_entries), evicted: $(figure larder_store_evicted_total), displaced: $(figure larder_store_displaced_total)"
echo "the long ones again"
client get --numbers "$numbers" --bytes "$body_bytes" > "$stage/again.json"
tell_failures again
verdict "long bodies: $bodies of $bodies arrive whole again" [ "$(saved again broken)" -eq 0 ]
verdict "long bodies: $bodies of $bodies are hits" [ "$(saved again hits)" -eq "$bodies" ]
verdict "long bodies: larder counts no broken answer" [ "$(figure larder_broken_responses_total)" -eq 0 ]
end TERM "$larder_pid"
rm -f "$stage/long.larder"

if [ "$many" = 1 ]; then
  origin --validators
  start many
  LISTEN_PORT=$larder_port
  store_bytes=$(stat -c %s "$stage/many.larder")
  echo "${MANY:-100} bodies, ${TURNOVERS:-3} turnovers of $((store_bytes / 1000000)) MB"
  client many --bodies "${MANY:-100}" --least "${LEAST:-64000000}" --most "${MOST:-1000000000}" --store "$store_bytes" \
    --turnovers "${TURNOVERS:-3}" --restarts "$stage/killed" > "$stage/many.json" &
  asking=$!
  pids+=("$asking")
  while [ "$kills" = 1 ] && kill -0 "$asking" 2>/dev/null; do
    sleep "${KILL_S:-60}"
    kill -0 "$asking" 2>/dev/null || break
    touch "$stage/killed"
    end KILL "$larder_pid"
    start many
    rm "$stage/killed"
  done
  wait "$asking"
  tell_failures many
  echo "$(saved many asked) answers, $(saved many hits) hits, $(saved many restarts) broken by a kill; completed by the origin: $(figure larder_range_fills_total)"
  verdict "long bodies: no answer of many broke off" [ "$(saved many broken)" -eq 0 ]
  verdict "long bodies: some of many are hits" [ "$(saved many hits)" -gt 0 ]
fi
summary
