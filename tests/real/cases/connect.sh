# HTTPS through CONNECT: a tunnel the proxy cannot look into, to a listed port only.
mkdir -p "$stage/www/secret"
head -c 500000 /dev/urandom > "$stage/www/secret/body"
url=https://localhost:$origin_tls_port/secret/body
curl -sS -x "$proxy" --cacert "$origin_ca" -o "$stage/connect" "$url" 2> "$stage/connect.log"
verdict "connect: the body is the origin's" cmp -s "$stage/connect" "$stage/www/secret/body"
curl -sS -x "$proxy" --cacert "$origin_ca" -o "$stage/connect" "$url" 2>> "$stage/connect.log"
verdict "connect: a tunnel is not cached" [ "$(origin_count '^GET /secret/body 200 ')" -eq 2 ]
status=$(curl -s -x "$proxy" -o /dev/null -w '%{http_connect}' "https://localhost:$origin_port/")
verdict "connect: a port that is not listed is refused" [ "$status" = 403 ]
