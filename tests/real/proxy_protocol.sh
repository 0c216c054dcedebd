#!/usr/bin/env bash
# The PROXY protocol towards origins, received by HAProxy (accept-proxy) and nginx (listen ... proxy_protocol): each
# origin sees the address of the client whose request caused the fetch, never that of another client; hits reach no
# origin; health checks are accepted.
#
#   tests/real/proxy_protocol.sh
. "$(dirname "$0")/stage.sh"
PATH=$PATH:/usr/sbin
need haproxy:haproxy nginx:nginx curl:curl python3:python3
export HOME=$stage XDG_RUNTIME_DIR=$stage/run
mkdir -p -m 0700 "$XDG_RUNTIME_DIR"
h_port=$(free_port); n_port=$(free_port)

# --- the receivers, which answer with the address that the header names

cat > "$stage/haproxy.cfg" <<T
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
frontend web
  bind 127.0.0.1:$h_port accept-proxy
  http-request return status 200 content-type text/plain hdr Cache-Control max-age=60 lf-string "%[src]:%[src_port]\n"
T
haproxy -f "$stage/haproxy.cfg" >"$stage/haproxy.log" 2>&1 &
pids+=("$!")
mkdir -p "$stage/nginx"
cat > "$stage/nginx.conf" <<T
daemon off;
pid $stage/nginx/pid;
error_log $stage/nginx/error.log;
events {}
http {
  access_log off;
  client_body_temp_path $stage/nginx/a; proxy_temp_path $stage/nginx/b; fastcgi_temp_path $stage/nginx/c;
  uwsgi_temp_path $stage/nginx/d; scgi_temp_path $stage/nginx/e;
  server {
    listen 127.0.0.1:$n_port proxy_protocol;
    set_real_ip_from 127.0.0.1;
    real_ip_header proxy_protocol;
    location / { add_header Cache-Control max-age=60; return 200 "\$remote_addr:\$proxy_protocol_port\n"; }
  }
}
T
nginx -c "$stage/nginx.conf" >"$stage/nginx.log" 2>&1 &
pids+=("$!")
await 10 answers "$h_port" || { cat "$stage/haproxy.log" >&2; exit 1; }
await 10 answers "$n_port" || { cat "$stage/nginx/error.log" >&2; exit 1; }

cat > "$stage/larder.toml" <<T
[[site]]
hosts = ["haproxy.test"]
origin = "http://127.0.0.1:$h_port"
proxy_protocol = "v2"
check_path = "/check"
check_interval = "200ms"
[[site]]
hosts = ["nginx.test"]
origin = "http://127.0.0.1:$n_port"
proxy_protocol = "v2"
check_path = "/check"
check_interval = "200ms"
T
launch larder --config "$stage/larder.toml" --disk "$stage/store.larder" --size 64MiB --memory-cache 4MB

# get FROM HOST PATH...: requests on one connection from this address; prints the bodies
get() {
  local from=$1 host=$2 path urls=(); shift 2
  for path; do urls+=("http://127.0.0.1:$larder_port$path"); done
  curl -sS --interface "$from" -H "Host: $host" "${urls[@]}"
}

for receiver in haproxy nginx; do
  wrong=0
  for round in $(seq 30); do
    from=127.0.0.$(( 2 + round % 3 ))
    while IFS=: read -r address port; do
      [ "$address" = "$from" ] && [ "$port" -gt 0 ] || wrong=$(( wrong + 1 ))
    done < <(get "$from" "$receiver.test" "/$round/a" "/$round/b")
  done
  verdict "$receiver: 60 fetches for three clients in turn name their own client ($wrong do not)" [ "$wrong" -eq 0 ]
  first=$(get 127.0.0.2 "$receiver.test" /shared)
  second=$(get 127.0.0.3 "$receiver.test" /shared)
  verdict "$receiver: a hit for another client has the body that was stored" [ "$first" = "$second" -a "${first%%:*}" = 127.0.0.2 ]
  seq 60 | xargs -P 6 -I N sh -c 'a=127.0.0.$(( 2 + N % 6 )); b=$(curl -sS --interface $a -H "Host: '"$receiver"'.test" "http://127.0.0.1:'"$larder_port"'/at-once/N"); [ "${b%%:*}" = "$a" ] || echo "$a got $b"' > "$stage/wrong"
  verdict "$receiver: 60 fetches for six clients at once name their own client" [ ! -s "$stage/wrong" ]
done
verdict "requests without a header are refused by the receivers" \
  [ "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$n_port/")" != 200 ]
end TERM "$larder_pid"
summary
