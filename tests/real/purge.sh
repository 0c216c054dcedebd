#!/usr/bin/env bash
# What a purge by tag costs with a million entries: the time until it is acknowledged and effective, memory for each purge, what a look-up pays
# for many of them, and whether it holds after kill -9.
#
#   tests/real/purge.sh                     1,000,000 entries
#   ENTRIES=100000 tests/real/purge.sh      fewer
#   DISK=/dev/loop7 tests/real/purge.sh     on a block device, which is overwritten
#
# The entries come from a file (larder unpack), and the cache alone is asked (only-if-cached): there is no origin.
# Passes if a purge is acknowledged within 100 ms, nothing that it is about is served after that, it takes less than 1 KB, and all of this holds
# after kill -9.
. "$(dirname "$0")/stage.sh"
need python3:python3 curl:curl
entries=${ENTRIES:-1000000}
part=100000
sample=2000
export XDG_CACHE_HOME=$stage/cache XDG_RUNTIME_DIR=$stage
mkdir -p "$XDG_CACHE_HOME"

tool() { python3 "$here/purge.py" "$@"; }
memory_of() { awk '/^VmRSS/ { print $2 * 1024 }' "/proc/$1/status"; }

loaded() { [ "$(curl -sS -o /dev/null -w "%{http_code}" "http://127.0.0.1:$admin_port/healthz")" = 200 ]; }

admin_port=$(free_port)
flags=(--disk "${DISK:-$stage/store.larder}" --mean-object-size 600B --memory-cache 64MB --admin "127.0.0.1:$admin_port")
[ -n "${DISK:-}" ] || flags+=(--size 4GB)
start() { LISTEN_PORT=${larder_port:-$(free_port)} launch "$1" "${flags[@]}"; }

start fill
echo "filling with $entries entries"
for ((first = 0; first < entries; first += part)); do
  count=$((entries - first < part ? entries - first : part))
  tool write --first "$first" --count "$count" > "$stage/part.warc"
  "$LARDER_BIN" unpack --admin "127.0.0.1:$admin_port" "$stage/part.warc" > "$stage/unpacked" 2>&1 || { cat "$stage/unpacked" >&2; exit 1; }
done
rm -f "$stage/part.warc"
before=$(tool look --port "$larder_port" --of "$entries" --count "$sample")
echo "  $before"
verdict "filled: at least 99% of a sample are served, byte by byte" [ "$(field "$before" wrong)" = 0 -a "$(field "$before" served)" -ge $((sample * 99 / 100)) ]

purged=$(tool effective --port "$larder_port" --admin-port "$admin_port" --tag t3 --of "$entries" --count "$sample" --rest 3)
echo "  $purged"
verdict "purge of a tenth of $entries entries: acknowledged in at most 100 ms" at_most "$(field "$purged" acknowledged_ms)" 100
verdict "nothing of it is served after that" [ "$(field "$purged" served) $(field "$purged" refused)" = "0 0" ]
others=$(tool look --port "$larder_port" --of "$entries" --count "$sample" --rest 4)
echo "  $others"
verdict "the others are" [ "$(field "$others" wrong)" = 0 -a "$(field "$others" served)" -ge $((sample * 99 / 100)) ]

one_by_one=$(tool purge --admin-port "$admin_port" --first 0 --count 1000)
echo "  $one_by_one"
verdict "1,000 purges, one by one: each within 100 ms" at_most "$(field "$one_by_one" max_ms)" 100
many=$(tool look --port "$larder_port" --of "$entries" --count "$sample" --rest 4)
echo "  with 1,000 purges: $many"
memory_before=$(memory_of "$larder_pid")
tool purge --admin-port "$admin_port" --first 1000 --count 10000 --tags-each 50 > "$stage/purged.json"
memory_each=$((($(memory_of "$larder_pid") - memory_before) / 10000))
echo "  10,000 more, 50 at a time: $(cat "$stage/purged.json"), $memory_each bytes of memory each"
verdict "a purge takes less than 1 KB of memory" [ "$memory_each" -lt 1024 ]
many=$(tool look --port "$larder_port" --of "$entries" --count "$sample" --rest 5)
echo "  with 11,000 purges: $many"
verdict "the others are served with 11,000 purges" [ "$(field "$many" wrong)" = 0 -a "$(field "$many" served)" -ge $((sample * 99 / 100)) ]

last=$(tool effective --port "$larder_port" --admin-port "$admin_port" --tag t7 --of "$entries" --count 1 --rest 7)
end KILL "$larder_pid"
echo "  $last, and killed"
start killed
await 60 loaded || echo "the store is not loaded after 60 s" >&2
for rest in 3 7; do
  purged=$(tool look --port "$larder_port" --of "$entries" --count "$sample" --rest "$rest")
  echo "  $purged"
  verdict "after kill -9: nothing of what was purged is served ($rest)" [ "$(field "$purged" served)" = 0 ]
done
others=$(tool look --port "$larder_port" --of "$entries" --count "$sample" --rest 4)
echo "  $others"
verdict "after kill -9: the others are" [ "$(field "$others" wrong)" = 0 -a "$(field "$others" served)" -ge $((sample * 99 / 100)) ]
summary
