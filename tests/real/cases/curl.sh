# curl: a document twice, byte for byte; a range and a conditional request answered from the cache.
mkdir -p "$stage/www/curl"
head -c 300000 /dev/urandom > "$stage/www/curl/body"
age "$stage/www/curl/body"
url=http://127.0.0.1:$origin_port/curl/body

for turn in first second; do
  curl -sS -x "$proxy" -D "$stage/curl.$turn.head" -o "$stage/curl.$turn" "$url"
  verdict "curl: $turn body is the origin's" cmp -s "$stage/curl.$turn" "$stage/www/curl/body"
done
verdict "curl: one request reached the origin" [ "$(origin_count '^GET /curl/body ')" -eq 1 ]
verdict "curl: Cache-Status says hit" grep -qi '^cache-status: .*hit' "$stage/curl.second.head"
verdict "curl: the hit has an Age" grep -qi '^age: ' "$stage/curl.second.head"

status=$(curl -sS -x "$proxy" -r 1000-1999 -o "$stage/curl.range" -w '%{http_code}' "$url")
verdict "curl: a range is a 206" [ "$status" = 206 ]
verdict "curl: the range holds its bytes" cmp -s "$stage/curl.range" <(tail -c +1001 "$stage/www/curl/body" | head -c 1000)
etag=$(sed -n 's/^[Ee][Tt]ag: \(.*\)\r$/\1/p' "$stage/curl.second.head")
status=$(curl -sS -x "$proxy" -H "If-None-Match: $etag" -o /dev/null -w '%{http_code}' "$url")
verdict "curl: the same entity tag is a 304" [ "$status" = 304 ]
verdict "curl: range and condition came from the cache" [ "$(origin_count '^GET /curl/body ')" -eq 1 ]

status=$(curl -sS -x "$proxy" -o /dev/null -w '%{http_code}' http://10.255.255.1/)
verdict "curl: a private target is refused" [ "$status" = 403 ]
