# The origin of the tests with real clients: Debian's nginx with a configuration, a prefix and a certificate of its own.
# Sets origin_port, origin_tls_port, origin_ca, origin_certificate. Documents lie in $stage/www; every request is a line of $stage/origin.access.

start_origin() {
  local www=$stage/www
  mkdir -p "$www" "$stage/nginx"
  origin_port=$(free_port)
  origin_tls_port=$(free_port)
  origin_ca=$stage/authority.pem
  origin_certificate=$stage/origin.pem
  local key=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)
  openssl req -x509 "${key[@]}" -days 2 -subj '/CN=an authority of the tests' -addext 'basicConstraints=critical,CA:TRUE' \
    -addext 'keyUsage=critical,keyCertSign' -keyout "$stage/authority.key" -out "$origin_ca" 2>"$stage/openssl.log"
  openssl req -x509 "${key[@]}" -days 2 -subj /CN=localhost -CA "$origin_ca" -CAkey "$stage/authority.key" \
    -addext 'subjectAltName=DNS:localhost,IP:127.0.0.1' -addext 'basicConstraints=critical,CA:FALSE' \
    -keyout "$stage/origin.key" -out "$origin_certificate" 2>>"$stage/openssl.log"
  # Started by root, nginx would drop to a user who may not look into the scratch folder.
  local user=
  [ "$(id -u)" -eq 0 ] && user='user root;'
  cat > "$stage/nginx.conf" <<C
$user
daemon off;
worker_processes 1;
pid $stage/nginx.pid;
error_log $stage/origin.error warn;
events { worker_connections 1024; }
http {
  types { text/html html; image/png png; text/plain txt; application/vnd.debian.binary-package deb; }
  default_type application/octet-stream;
  log_format short '\$request_method \$request_uri \$status \$body_bytes_sent';
  access_log $stage/origin.access short;
  client_body_temp_path $stage/nginx/a; proxy_temp_path $stage/nginx/b; fastcgi_temp_path $stage/nginx/c;
  uwsgi_temp_path $stage/nginx/d; scgi_temp_path $stage/nginx/e;
  server {
    listen 127.0.0.1:$origin_port;
    listen 127.0.0.1:$origin_tls_port ssl;
    ssl_certificate $origin_certificate;
    ssl_certificate_key $stage/origin.key;
    root $www;
    location /page/ { expires 1h; }
    location /big/ { expires 1h; }
  }
}
C
  PATH=$PATH:/usr/sbin nginx -p "$stage/nginx" -e "$stage/origin.error" -c "$stage/nginx.conf" &
  pids+=("$!")
  if ! await 10 origin_answers; then
    echo "nginx did not start:" >&2
    cat "$stage/origin.error" >&2
    exit 1
  fi
}
origin_answers() { curl -s -o /dev/null "http://127.0.0.1:$origin_port/"; }

# origin_count PATTERN: how many of the origin's requests match (method, URI, status, bytes)
origin_count() { grep -cE "$1" "$stage/origin.access"; }

# age FILE...: makes documents a month old, so that a cache may keep them without being told for how long
age() { touch -d '30 days ago' "$@"; }
