#!/usr/bin/env bash
# A large download by four clients at once: one fetch from the origin, bounded memory, four right bodies; then once
# more from the cache.
#
#   tests/real/big.sh                    1 GB
#   BIG_BYTES=5000000000 tests/real/big.sh
#
# Passes if all bodies have the origin's SHA-256, the origin was asked once, and larder's peak memory stays below
# MEMORY_MAX_MB (default 400: 64 MB hot tier, the index, what is on its way to the disk and to four clients).
. "$(dirname "$0")/stage.sh"
. "$here/origin.sh"
need curl:curl nginx:nginx-light openssl:openssl python3:python3 sha256sum:coreutils
bytes=${BIG_BYTES:-1000000000}
memory_max_mb=${MEMORY_MAX_MB:-400}

start_origin
mkdir -p "$stage/www/big"
openssl enc -aes-128-ctr -nosalt -pass pass:larder -in /dev/zero 2>/dev/null | head -c "$bytes" > "$stage/www/big/body"
expected=$(sha256sum < "$stage/www/big/body")
launch big --disk "$stage/store.larder" --size "$((bytes * 3 / 2 + 500000000))" --allow-target 127.0.0.0/8
proxy=http://127.0.0.1:$larder_port
url=http://127.0.0.1:$origin_port/big/body

download() { curl -sS -x "$proxy" -D "$stage/$1.head" "$url" 2>"$stage/$1.error" | sha256sum > "$stage/$1.sum"; }
since=$(date +%s.%N)
clients=()
for client in 1 2 3 4; do
  download "$client" &
  clients+=("$!")
done
wait "${clients[@]}"
echo "four clients: $(python3 -c 'import sys, time; print(round(time.time() - float(sys.argv[1]), 2))' "$since") s"
for client in 1 2 3 4; do
  verdict "big: body of client $client is the origin's" [ "$(cat "$stage/$client.sum")" = "$expected" ]
done
verdict "big: one request reached the origin" [ "$(origin_count '^GET /big/body ')" -eq 1 ]

since=$(date +%s.%N)
download again
echo "once more: $(python3 -c 'import sys, time; print(round(time.time() - float(sys.argv[1]), 2))' "$since") s"
verdict "big: the body from the cache is the origin's" [ "$(cat "$stage/again.sum")" = "$expected" ]
verdict "big: Cache-Status says hit" grep -qi '^cache-status: .*hit' "$stage/again.head"
verdict "big: still one request reached the origin" [ "$(origin_count '^GET /big/body ')" -eq 1 ]

peak_kb=$(awk '/^VmHWM/ { print $2 }' "/proc/$larder_pid/status")
echo "larder's peak memory: $((peak_kb / 1024)) MB"
verdict "big: peak memory is below $memory_max_mb MB" [ "$peak_kb" -lt "$((memory_max_mb * 1024))" ]
summary
