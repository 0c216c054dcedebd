# Reverse mode: every host from one origin, over HTTP and over HTTPS, from a memory-only instance.
mkdir -p "$stage/www/reverse"
head -c 100000 /dev/urandom > "$stage/www/reverse/plain"
head -c 100000 /dev/urandom > "$stage/www/reverse/tls"
age "$stage"/www/reverse/*

forward_port=$larder_port
launch reverse --disk none --origin "http://127.0.0.1:$origin_port"
reverse_pid=$larder_pid
for turn in first second; do
  curl -sS -H 'Host: www.example.test' -o "$stage/reverse.plain" "http://127.0.0.1:$larder_port/reverse/plain"
  verdict "reverse: $turn body is the origin's" cmp -s "$stage/reverse.plain" "$stage/www/reverse/plain"
  verdict "reverse: one request reached the origin" [ "$(origin_count '^GET /reverse/plain ')" -eq 1 ]
done
status=$(curl -s -x "http://127.0.0.1:$larder_port" -o /dev/null -w '%{http_connect}' "https://localhost:$origin_tls_port/")
verdict "reverse: it is no forward proxy" [ "$status" != 200 ]
end TERM "$reverse_pid"

cat > "$stage/reverse.toml" <<C
origin_ca_file = "$origin_ca"
[store]
path = "none"
[[site]]
hosts = ["secure.example.test"]
origin = "https://localhost:$origin_tls_port"
C
launch reverse-tls --config "$stage/reverse.toml"
reverse_pid=$larder_pid
for turn in first second; do
  curl -sS -H 'Host: secure.example.test' -o "$stage/reverse.tls" "http://127.0.0.1:$larder_port/reverse/tls"
  verdict "reverse: $turn body from a TLS origin is the origin's" cmp -s "$stage/reverse.tls" "$stage/www/reverse/tls"
  verdict "reverse: one request reached the TLS origin" [ "$(origin_count '^GET /reverse/tls ')" -eq 1 ]
done
end TERM "$reverse_pid"
# The cases after this one use the forward proxy.
larder_port=$forward_port
