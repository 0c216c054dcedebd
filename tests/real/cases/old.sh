# Clients of HTTP/1.0: by hand, with and without Keep-Alive, and ab (ApacheBench), which speaks nothing newer.
mkdir -p "$stage/www/old"
head -c 20000 /dev/urandom > "$stage/www/old/body"
age "$stage/www/old/body"
url=http://127.0.0.1:$origin_port/old/body

# ask REQUEST...: sends the requests on one connection, and prints what comes until it closes
ask() {
  (
    exec 3<>"/dev/tcp/127.0.0.1/$larder_port"
    printf '%b' "$@" >&3
    timeout 10 cat <&3
  )
}
ask "GET $url HTTP/1.0\r\n\r\n" | sed '1,/^\r$/d' > "$stage/old"
verdict "old: the body ends with the connection" cmp -s "$stage/old" "$stage/www/old/body"
count=$(ask "GET $url HTTP/1.0\r\nProxy-Connection: keep-alive\r\n\r\n" "GET $url HTTP/1.0\r\n\r\n" | grep -ao 'HTTP/1.[01] 200' | wc -l)
verdict "old: Keep-Alive gets a second response" [ "$count" -eq 2 ]
verdict "old: no chunks for HTTP/1.0" [ "$(ask "GET $url HTTP/1.0\r\n\r\n" | grep -aci '^transfer-encoding')" -eq 0 ]
for keep in '' -k; do
  # shellcheck disable=SC2086
  timeout 120 ab -q $keep -n 2000 -c 20 -X "127.0.0.1:$larder_port" "$url" > "$stage/ab" 2>&1
  verdict "old: ab $keep completes 2,000 requests" grep -q 'Complete requests: *2000' "$stage/ab"
  verdict "old: ab $keep has none that failed" grep -q 'Failed requests: *0$' "$stage/ab"
  verdict "old: ab $keep has only responses of 2xx" [ "$(grep -c 'Non-2xx' "$stage/ab")" -eq 0 ]
done
verdict "old: one request reached the origin" [ "$(origin_count '^GET /old/body ')" -eq 1 ]
