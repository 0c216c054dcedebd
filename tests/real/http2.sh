#!/usr/bin/env bash
# HTTP/2 and TLS with real clients: curl and nghttp, by ALPN and by prior knowledge, the second time from the cache; and
# h2spec, where it is installed (go install github.com/summerwind/h2spec/cmd/h2spec@latest; H2SPEC names it elsewhere).
#
#   tests/real/http2.sh
#
# Needs the release build (or LARDER_BIN). Prints PASS / FAIL lines, then a summary; exits 0 only if all passed.
. "$(dirname "$0")/stage.sh"
. "$here/origin.sh"

need curl:curl nginx:nginx-light openssl:openssl python3:python3 nghttp:nghttp2-client

start_origin
mkdir -p "$stage/www/page"
head -c 300000 /dev/urandom > "$stage/www/page/body"
tls_port=$(free_port)
launch reverse --disk none --listen-tls "127.0.0.1:$tls_port" --certificate "$origin_certificate,$stage/origin.key" \
  --origin "http://127.0.0.1:$origin_port"
plain=http://localhost:$larder_port tls=https://localhost:$tls_port

# fetch NAME URL FLAG...: twice with curl; the same bytes, the version expected, and one request at the origin
fetch() {
  local name=$1 url=$2 version before; shift 2
  before=$(origin_count '^GET /page/body')
  for turn in 1 2; do
    version=$(curl -sS --cacert "$origin_ca" -o "$stage/got" -w '%{http_version}' "$@" "$url" 2>>"$stage/curl.log")
    verdict "$name: body, turn $turn" cmp -s "$stage/got" "$stage/www/page/body"
  done
  verdict "$name: HTTP/$want" [ "$version" = "$want" ]
  verdict "$name: at most one request at the origin" [ $(( $(origin_count '^GET /page/body') - before )) -le 1 ]
}
want=2 fetch "curl, ALPN" "$tls/page/body?alpn" --http2
want=2 fetch "curl, prior knowledge" "$plain/page/body?prior" --http2-prior-knowledge
want=1.1 fetch "curl, TLS" "$tls/page/body?tls" --http1.1
want=1.1 fetch "curl, plain" "$plain/page/body?plain" --http1.1

for url in "$plain/page/body?alpn" "$tls/page/body?alpn"; do
  nghttp --no-verify-peer "$url" > "$stage/got" 2>>"$stage/nghttp.log"
  verdict "nghttp: $url" cmp -s "$stage/got" "$stage/www/page/body"
done
verdict "nghttp: 50 streams at once" \
  [ "$(nghttp --no-verify-peer -n -s -m 50 "$tls/page/body?alpn" 2>/dev/null | grep -c ' 200 ')" -eq 50 ]
verdict "HEAD has the length" \
  [ "$(curl -sSI --http2 --cacert "$origin_ca" "$tls/page/body?alpn" | tr -d '\r' | grep -i '^content-length')" = "content-length: 300000" ]
curl -sS --http2 --cacert "$origin_ca" -r 1000-1999 -o "$stage/got" "$tls/page/body?alpn"
verdict "a range" cmp -s "$stage/got" <(tail -c +1001 "$stage/www/page/body" | head -c 1000)

h2spec=${H2SPEC:-$(command -v h2spec)}
if [ -x "$h2spec" ]; then
  for way in "plain -p $larder_port" "TLS -p $tls_port -t -k"; do
    read -r name flags <<<"$way"
    # shellcheck disable=SC2086
    result=$("$h2spec" -h 127.0.0.1 -o 5 $flags 2>&1 | tee "$stage/h2spec.$name" | grep ' tests, ')
    echo "h2spec, $name: $result"
    verdict "h2spec, $name: all 145 pass" [ "$(sed 's/.* tests, \([0-9]*\) passed.*/\1/' <<<"$result")" -eq 145 ]
  done
else
  echo "h2spec is not installed, and left out"
fi
summary
