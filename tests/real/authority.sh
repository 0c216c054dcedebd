#!/usr/bin/env bash
# The local authority as OpenSSL and curl see it: an authority for some hosts is of no use for others, even to who has its key, and curl takes
# what it signs, inside a tunnel, for what it says.
#
#   tests/real/authority.sh
. "$(dirname "$0")/stage.sh"
need openssl:openssl curl:curl certutil:libnss3-tools vfychain:libnss3-tools
ca=$stage/ca

"$LARDER_BIN" ca init --dir "$ca" --host pypi.org --host '*.debian.org' --host 192.0.2.1 > "$stage/init.out" || exit 1
verdict "key: mode 0600" [ "$(stat -c %a "$ca/ca.key")" = 600 ]
verdict "certificate: an authority that makes no authorities" grep -q 'CA:TRUE, pathlen:0' <(openssl x509 -in "$ca/ca.pem" -noout -text)
verdict "certificate: its name constraints are critical" grep -q 'Name Constraints: critical' <(openssl x509 -in "$ca/ca.pem" -noout -text)

# leaf NAME SAN: what who has the key can sign
leaf() {
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$stage/leaf.key" -out "$stage/leaf.csr" -subj "/CN=x" 2> /dev/null
  openssl x509 -req -in "$stage/leaf.csr" -CA "$ca/ca.pem" -CAkey "$ca/ca.key" -CAcreateserial -CAserial "$stage/serial" -days 2 \
    -extfile <(printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth\n' "$1") -out "$stage/leaf.pem" 2> /dev/null
  openssl verify -purpose sslserver -CAfile "$ca/ca.pem" "$stage/leaf.pem" 2>&1
}
for name in DNS:pypi.org DNS:a.pypi.org DNS:deb.debian.org IP:192.0.2.1; do
  verdict "openssl takes $name" grep -q ': OK' <(leaf "$name")
done
for name in DNS:bank.example DNS:xpypi.org DNS:org IP:192.0.2.2 IP:2001:db8::1; do
  verdict "openssl refuses $name" grep -q 'permitted subtree violation' <(leaf "$name")
done

# The same as browsers see it (NSS).
mkdir "$stage/nss"
certutil -d "sql:$stage/nss" -N --empty-password
certutil -d "sql:$stage/nss" -A -n larder -t C,, -i "$ca/ca.pem"
# nss SAN: what NSS says of what who has the key signs
nss() { leaf "$1" > /dev/null; vfychain -d "sql:$stage/nss" -pp -u 1 -a "$stage/leaf.pem" 2>&1; }
for name in DNS:pypi.org DNS:a.pypi.org DNS:deb.debian.org; do
  verdict "NSS takes $name" grep -q 'Chain is good' <(nss "$name")
done
for name in DNS:bank.example DNS:xpypi.org IP:192.0.2.2; do
  verdict "NSS refuses $name" grep -q 'Chain is bad' <(nss "$name")
done

# A certificate that Larder makes, for a host that nobody answers for: what matters is the handshake with us.
"$LARDER_BIN" ca init --dir "$stage/any" > /dev/null
printf '[intercept]\nhosts = ["all", "all"]\nexcept = ["left.invalid"]\nca_dir = "%s"\n[store]\npath = "none"\n' "$stage/any" > "$stage/larder.toml"
launch larder --config "$stage/larder.toml"
fetch() { curl -sS -x "http://127.0.0.1:$larder_port" -o /dev/null -w '%{http_code}' "$@" 2>&1; }
verdict "curl: our page, over our TLS" [ "$(fetch --cacert "$stage/any/ca.pem" https://nobody.invalid/)" = 502 ]
verdict "curl, HTTP/1.1: the same" [ "$(fetch --http1.1 --cacert "$stage/any/ca.pem" https://nobody.invalid/)" = 502 ]
verdict "curl without our authority: refused" grep -q 'SSL certificate problem' <(fetch https://nobody.invalid/)
verdict "an excepted host is tunneled: no answer to CONNECT but the origin's" grep -q 'CONNECT tunnel failed' <(fetch --cacert "$stage/any/ca.pem" https://left.invalid/)
summary
