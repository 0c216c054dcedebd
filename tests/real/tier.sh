#!/usr/bin/env bash
# A second tier in an object store (moto's S3), behind a relay that can fail: the store stopped, ten seconds slow, and
# with flipped bits costs hits only. Then the hits of a small disk with the tier, compared with those of a disk ten times
# as large.
#
#   tests/real/tier.sh                          500 MB of content over 50 MB of disk
#   OBJECTS=8000 DISK_MB=100 tests/real/tier.sh    1 GB over 100 MB
#
# Needs a larder that is built with the feature tier-s3, and moto's server (pip install 'moto[server]').
. "$(dirname "$0")/stage.sh"
need python3:python3 curl:curl moto_server:moto-server
OBJECTS=${OBJECTS:-2600}
DISK_MB=${DISK_MB:-50}
REQUESTS=${REQUESTS:-$((OBJECTS * 4))}
client="$here/tier.py"
export HOME=$stage XDG_RUNTIME_DIR=$stage/run
mkdir -p -m 0700 "$XDG_RUNTIME_DIR"
export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test AWS_EC2_METADATA_DISABLED=true

moto=$(free_port) relay=$(free_port) origin=$(free_port)
moto_server -H 127.0.0.1 -p "$moto" >"$stage/moto.log" 2>&1 &
pids+=("$!")
python3 "$client" origin "$origin" &
pids+=("$!")
mode() { echo "$1" > "$stage/mode"; }
mode pass
python3 "$client" relay "$relay" "$moto" "$stage/mode" &
pids+=("$!")
await 60 answers "$moto" && await 10 answers "$origin" && await 10 answers "$relay" || { echo "no servers" >&2; exit 1; }
curl -sS -X PUT "http://127.0.0.1:$moto/packs" >/dev/null

cat > "$stage/tier.toml" <<T
[tier]
bucket = "packs"
endpoint = "http://127.0.0.1:$relay"
region = "us-east-1"
prefix = "test"
admit = "all"
pack_age = "2s"
read_timeout = "1s"
T
admin_port=$(free_port)
"$LARDER_BIN" config check "$stage/tier.toml" >/dev/null || exit 1
launch small --config "$stage/tier.toml" --disk "$stage/small.larder" --size "${DISK_MB}MB" --memory-cache 0B --workers 1 \
  --origin "http://127.0.0.1:$origin" --admin "127.0.0.1:$admin_port"
small=$larder_port small_pid=$larder_pid

# load PORT REQUESTS SEED: prints the result as JSON
load() { python3 "$client" load "$1" --objects "$OBJECTS" --requests "$2" --seed "$3"; }
right() { [ "$(field "$1" failed)" -eq 0 ] && [ "$(field "$1" wrong)" -eq 0 ]; }
stored() { [ "$(figure larder_tier_waiting_entries)" -eq 0 ]; }

# --- hits

found=$(load "$small" "$REQUESTS" 1)
verdict "small disk with tier, first half: $found" right "$found"
await 60 stored
found=$(load "$small" "$REQUESTS" 2)
small_hits=$(field "$found" hits)
verdict "small disk with tier, second half: $found" right "$found"
echo "      tier: $(figure larder_tier_hits_total) hits, $(figure larder_tier_packs_stored_total) packs," \
  "$(figure larder_tier_dropped_total) entries dropped, $(figure larder_tier_failed_total) failures"

# --- faults

for fault in stop slow flip; do
  bypassed=$(figure larder_tier_bypassed_total) corrupt=$(figure larder_tier_corrupt_total)
  mode "$fault"
  found=$(load "$small" "$((REQUESTS / 8))" "$((RANDOM + 10))")
  verdict "object store, $fault: $found, $(( $(figure larder_tier_bypassed_total) - bypassed )) lookups skipped," \
    right "$found"
  [ "$fault" = flip ] && verdict "flipped bits were noticed" [ "$(figure larder_tier_corrupt_total)" -gt "$corrupt" ]
  mode pass
  is_up() { load "$small" 100 "$RANDOM" >/dev/null; [ "$(figure larder_tier_up)" -eq 1 ]; }
  verdict "object store, after $fault: it is used again" await 150 is_up
done

# --- a restart

hits_before=$(figure larder_tier_hits_total)
end TERM "$small_pid"
LISTEN_PORT=$small launch small --config "$stage/tier.toml" --disk "$stage/small.larder" --memory-cache 0B --workers 1 \
  --origin "http://127.0.0.1:$origin" --admin "127.0.0.1:$admin_port"
found=$(load "$small" "$((REQUESTS / 8))" 3)
verdict "after a restart: $found, $(figure larder_tier_hits_total) hits of the tier (before: $hits_before)" right "$found"
verdict "after a restart, the tier has hits" [ "$(figure larder_tier_hits_total)" -gt 0 ]
end TERM "$larder_pid"

# --- beside a large disk

launch large --disk "$stage/large.larder" --size "$((DISK_MB * 10))MB" --memory-cache 0B --workers 1 \
  --origin "http://127.0.0.1:$origin"
load "$larder_port" "$REQUESTS" 1 >/dev/null
found=$(load "$larder_port" "$REQUESTS" 2)
large_hits=$(field "$found" hits)
verdict "large disk, second half: $found" right "$found"
verdict "the small disk with the tier has $small_hits hits, the large one $large_hits" \
  at_least "$small_hits" "$(python3 -c "print(0.95 * $large_hits)")"
summary
