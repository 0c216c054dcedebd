#!/usr/bin/env python3
"""Processor time of an intercepted hit, and of the handshake that comes before it: Larder, Squid with ssl_bump, and mitmproxy, in one run.

  bench/interception.py                       about two minutes
  bench/interception.py --requests 5000 --handshakes 500

Needs openssl, the release build or LARDER_BIN, and, of squid (squid-openssl) and mitmdump (mitmproxy), those that are to be compared. The
client goes through four tunnels that stay open; then it opens a tunnel for each of as many handshakes, with the certificate in its proxy's
cache. Processor time is that of all processes of a proxy, from /proc; mitmproxy caches nothing, so it asks the origin each time.
"""

import argparse
import http.server
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
SIZES = (1 << 10, 64 << 10)
TICKS = os.sysconf("SC_CLK_TCK")


def authority(folder, name, host=None):
    """Makes an authority, or what it signs for a host; returns the paths of certificate and key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    if host is None:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}",
             "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign", "-keyout", key, "-out", certificate],
            check=True, capture_output=True)
        return certificate, key
    request, said = folder / f"{name}.csr", folder / f"{name}.ext"
    said.write_text(f"subjectAltName=DNS:{host}\n")
    subprocess.run(["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={host}",
                    "-keyout", key, "-out", request], check=True, capture_output=True)
    ours = folder / "origin-ca"
    subprocess.run(["openssl", "x509", "-req", "-days", "2", "-in", request, "-CA", f"{ours}.pem", "-CAkey", f"{ours}.key",
                    "-CAcreateserial", "-extfile", said, "-out", certificate], check=True, capture_output=True)
    return certificate, key


class Origin(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_GET(self):
        size = int(self.path.rsplit("/", 1)[1])
        self.send_response(200)
        for field in [("Cache-Control", "max-age=3600"), ("Content-Length", str(size)), ("Content-Type", "text/plain")]:
            self.send_header(*field)
        self.end_headers()
        self.wfile.write(bytes(size))

    def log_message(self, *_):
        pass


def start_origin(certificate, key):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Origin)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Proxy:
    """A proxy that runs: its processes, its port, and the authority that its clients trust."""

    def __init__(self, name, command, port, trusted, environment=None):
        self.name, self.port, self.trusted = name, port, trusted
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL,
                                        env=environment, start_new_session=True)
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        self.log.seek(0)
        sys.exit(f"{name} does not start:\n{self.log.read().decode()[-2000:]}")

    def seconds(self):
        """Returns the processor time of its session."""
        total = 0
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(words[3]) == self.process.pid:
                total += int(words[11]) + int(words[12])
        return total / TICKS

    def end(self):
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)


class Tunnel:
    """A tunnel through a proxy, with a handshake inside."""

    def __init__(self, proxy, port, context):
        self.plain = socket.create_connection(("127.0.0.1", proxy.port), 60)
        self.plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.plain.sendall(b"CONNECT localhost:%d HTTP/1.1\r\nHost: localhost:%d\r\n\r\n" % (port, port))
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += self.plain.recv(1)
        assert b" 200 " in answer, answer
        self.stream = context.wrap_socket(self.plain, server_hostname="localhost")
        self.lines = self.stream.makefile("rb")
        self.host = b"localhost:%d" % port

    def get(self, size):
        self.stream.sendall(b"GET /%d HTTP/1.1\r\nHost: %b\r\n\r\n" % (size, self.host))
        status, length = self.lines.readline(), 0
        assert b" 200 " in status, status
        while line := self.lines.readline().strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        assert length == size and len(self.lines.read(length)) == size

    def close(self):
        self.lines.close()
        self.stream.close()


def larder(folder, origin_ca):
    program = os.environ.get("LARDER_BIN", ROOT / "target/release/larder")
    port, directory = free_port(), folder / "ca"
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    subprocess.run([program, "ca", "init", "--dir", directory, "--host", "localhost"], check=True, capture_output=True, env=environment)
    config = folder / "larder.toml"
    config.write_text(f"""listen = ["127.0.0.1:{port}"]
origin_ca_file = "{origin_ca}"
[store]
path = "{folder}/store.larder"
size = "256MB"
[forward]
allow_targets = ["127.0.0.0/8", "::1"]
connect_ports = [1-65535]
[intercept]
hosts = ["localhost"]
ca_dir = "{directory}"
""".replace("[1-65535]", f"[{ORIGIN_PORT}]"))
    return Proxy("larder", [program, "run", "--config", config], port, directory / "ca.pem", environment)


def squid(folder, origin_ca):
    port, home = free_port(), folder / "squid"
    home.mkdir()
    certificate, key = authority(folder, "squid-ca")
    both = folder / "squid-both.pem"
    both.write_text(certificate.read_text() + key.read_text())
    tool = next(path for path in ["/usr/lib/squid/security_file_certgen", "/usr/lib64/squid/security_file_certgen"] if os.path.exists(path))
    subprocess.run([tool, "-c", "-s", home / "certificates", "-M", "4MB"], check=True, capture_output=True)
    config = folder / "squid.conf"
    config.write_text(f"""http_port 127.0.0.1:{port} ssl-bump tls-cert={both} generate-host-certificates=on dynamic_cert_mem_cache_size=4MB
sslcrtd_program {tool} -s {home}/certificates -M 4MB
tls_outgoing_options cafile={origin_ca}
acl first at_step SslBump1
ssl_bump peek first
ssl_bump bump all
http_access allow all
cache_mem 64 MB
maximum_object_size_in_memory 1 MB
access_log none
cache_log {home}/cache.log
pid_filename {home}/squid.pid
coredump_dir {home}
shutdown_lifetime 1 second
""")
    folder.chmod(0o755)
    subprocess.run(["chown", "-R", "proxy", home, both], check=False)
    both.chmod(0o644)
    return Proxy("squid", ["squid", "-N", "-f", config], port, certificate)


def mitmproxy(folder, origin_ca):
    port, home = free_port(), folder / "mitmproxy"
    command = ["mitmdump", "-q", "--listen-host", "127.0.0.1", "-p", str(port), "--set", f"confdir={home}",
               "--set", f"ssl_verify_upstream_trusted_ca={origin_ca}"]
    return Proxy("mitmproxy", command, port, home / "mitmproxy-ca-cert.pem")


def measure(proxy, options):
    """Returns microseconds of processor time: of a hit of each size, and of a handshake with its tunnel and one hit."""
    context = ssl.create_default_context(cafile=str(proxy.trusted))
    tunnels = [Tunnel(proxy, ORIGIN_PORT, context) for _ in range(4)]
    figures = []
    for size in SIZES:
        for tunnel in tunnels * 8:
            tunnel.get(size)
        before = proxy.seconds()
        for number in range(options.requests):
            tunnels[number % 4].get(size)
        figures.append((proxy.seconds() - before) / options.requests * 1e6)
    for tunnel in tunnels:
        tunnel.close()
    before, start = proxy.seconds(), time.monotonic()
    for _ in range(options.handshakes):
        tunnel = Tunnel(proxy, ORIGIN_PORT, context)
        tunnel.get(SIZES[0])
        tunnel.close()
    figures.append((proxy.seconds() - before) / options.handshakes * 1e6)
    figures.append(options.handshakes / (time.monotonic() - start))
    return figures


def main():
    global ORIGIN_PORT
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--handshakes", type=int, default=400)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        origin_ca, _ = authority(folder, "origin-ca")
        ORIGIN_PORT = start_origin(*authority(folder, "origin", "localhost"))
        print(f"{'':10} {'1 KB us':>9} {'64 KB us':>9} {'handshake us':>13} {'handshakes/s':>13}")
        for start, tool in [(larder, None), (squid, "squid"), (mitmproxy, "mitmdump")]:
            if tool and not shutil.which(tool):
                print(f"{start.__name__:10} not on this machine")
                continue
            proxy = start(folder, origin_ca)
            try:
                one, many, handshake, rate = measure(proxy, options)
            finally:
                proxy.end()
            print(f"{proxy.name:10} {one:9.0f} {many:9.0f} {handshake:13.0f} {rate:13.0f}")


ORIGIN_PORT = 0
if __name__ == "__main__":
    main()
