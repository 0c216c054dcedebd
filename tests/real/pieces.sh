#!/usr/bin/env bash
# A long body on three siblings: nginx has it, each node requests a part of its pieces, and every client gets the right
# bytes, whichever node it reaches, also after kill -9 of one node. Then the same with certificates between the nodes.
#
#   tests/real/pieces.sh
#   MEGABYTES=1000 tests/real/pieces.sh
. "$(dirname "$0")/stage.sh"
PATH=$PATH:/usr/sbin
need nginx:nginx curl:curl openssl:openssl python3:python3
MEGABYTES=${MEGABYTES:-300}
export HOME=$stage XDG_RUNTIME_DIR=$stage/run
mkdir -p -m 0700 "$XDG_RUNTIME_DIR"
size=$(( MEGABYTES * 1000000 ))

# --- the origin

mkdir -p "$stage/www"
head -c "$size" /dev/urandom > "$stage/www/long"
sum=$(sha256sum < "$stage/www/long")
origin=$(free_port)
cat > "$stage/nginx.conf" <<T
user root; daemon off; pid $stage/nginx.pid; error_log $stage/nginx.err;
events {}
http {
  log_format sent '\$body_bytes_sent';
  access_log $stage/sent.log sent;
  client_body_temp_path $stage/a; proxy_temp_path $stage/b; fastcgi_temp_path $stage/c; uwsgi_temp_path $stage/d; scgi_temp_path $stage/e;
  server { listen 127.0.0.1:$origin; root $stage/www; add_header Cache-Control max-age=86400; }
}
T
nginx -e "$stage/nginx.err" -c "$stage/nginx.conf" 2>>"$stage/nginx.err" &
pids+=("$!")
await 10 answers "$origin" || { echo "the origin did not start" >&2; exit 1; }
# fetched: the bytes that nginx sent since the last call, in percent of the body
fetched() { sleep 1; awk -v size="$size" '{ sum += $1 } END { printf "%d", sum * 100 / size }' "$stage/sent.log"; : > "$stage/sent.log"; }

# --- the nodes

(umask 077; echo "a secret of these three nodes" > "$stage/secret")
for name in a b c; do declare "port_$name=$(free_port)" "node_port_$name=$(free_port)"; done
# configure WITH_TLS: writes the configuration of each node
configure() {
  local name nodes="" address
  for name in a b c; do
    address=port_$name; [ "$1" = tls ] && address=node_port_$name
    nodes+="\"$name=127.0.0.1:${!address}\", "
  done
  for name in a b c; do
    address=node_port_$name
    { echo "node = \"$name\""
      echo "[fleet]"
      echo "nodes = [${nodes%, }]"
      echo "secret_file = \"$stage/secret\""
      echo "siblings = true"
      [ "$1" = tls ] && printf 'listen = "127.0.0.1:%s"\ncertificate = "%s"\nkey = "%s"\nca_file = "%s"\n' \
        "${!address}" "$stage/$name.pem" "$stage/$name.key" "$stage/ca.pem"
    } > "$stage/$name.toml"
  done
}
declare -A pid
# start NAME LABEL: starts a node with the store of this label
start() {
  local port=port_$1
  LISTEN_PORT=${!port} launch "$2-$1" --config "$stage/$1.toml" --disk "$stage/$2-$1.larder" --size $(( MEGABYTES * 2 ))MB \
    --memory-cache 16MB --workers 1 --origin "http://127.0.0.1:$origin"
  pid[$1]=$larder_pid
}
# whole NAME: whether a client of this node gets the right body
whole() { local port=port_$1; [ "$(curl -s -m 120 -H "Host: www.example.test" "http://127.0.0.1:${!port}/long" | sha256sum)" = "$sum" ]; }
# part NAME: whether a client of this node gets the right bytes of a range over two pieces
part() {
  local port=port_$1
  cmp -s <(curl -s -m 120 -H "Host: www.example.test" -r 33000000-34000000 "http://127.0.0.1:${!port}/long") <(tail -c +33000001 "$stage/www/long" | head -c 1000001)
}

# check LABEL: the same requests without and with certificates
check() {
  local label=$1 name
  for name in a b c; do start "$name" "$label"; done
  sleep 2
  : > "$stage/sent.log"
  verdict "$label: a range of a body that no node has" part b
  fetched >/dev/null
  for name in a b c; do verdict "$label: the whole body from node $name" whole "$name"; done
  local percent; percent=$(fetched)
  verdict "$label: the origin sent $percent% of the body to three nodes" [ "$percent" -le 115 ]
  for name in a b c; do verdict "$label: again from node $name" whole "$name"; done
  percent=$(fetched)
  verdict "$label: and then $percent%" [ "$percent" -le 5 ]
  end KILL "${pid[b]}"
  verdict "$label: node b is killed, and node a has the whole body" whole a
  verdict "$label: and node c" whole c
  start b "$label"
  sleep 2
  verdict "$label: node b is back" whole b
  for name in a b c; do end TERM "${pid[$name]}"; done
  fetched >/dev/null
}

configure plain
check plain

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj '/CN=fleet' -keyout "$stage/ca.key" -out "$stage/ca.pem" 2>/dev/null
for name in a b c; do
  (umask 077; openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj "/CN=$name" \
    -addext 'subjectAltName=IP:127.0.0.1' -addext 'basicConstraints=critical,CA:FALSE' -CA "$stage/ca.pem" -CAkey "$stage/ca.key" \
    -keyout "$stage/$name.key" -out "$stage/$name.pem" 2>/dev/null)
done
configure tls
check certificates
summary
