#!/usr/bin/env python3
"""Processor time of a hit over TLS, of a hit over HTTP/2 with TLS, and of a full handshake: Larder and nginx, in one run.

  bench/tls.py                 five rounds, about three minutes
  bench/tls.py --rounds 3 --seconds 3

Needs h2load, openssl, nginx, and the release build or LARDER_BIN. Both servers have one worker and the same certificate
(P-256), and answer from memory with a body of 1 KB: nginx from the page cache. h2load opens 16 connections, over HTTP/2
with 16 requests at once on each. For handshakes, `openssl s_time -new` opens one connection after the other and sends no
request. Rounds alternate. The table has the medians over the rounds, and the median, least and largest of their ratios.
"""

import argparse
import http.server
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading

from interception import Origin, Proxy, authority, free_port
from memory_cache import PROGRAM

HOST = "bench.example"
NGINX = """
user root;
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log crit;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  sendfile on; tcp_nopush on; tcp_nodelay on;
  keepalive_timeout 300s; keepalive_requests 1000000000;
  ssl_session_cache off; ssl_session_tickets off;
  open_file_cache max=1000 inactive=60s; open_file_cache_valid 60s; open_file_cache_min_uses 1;
  proxy_cache_path {folder}/cache levels=1:2 keys_zone=c:16m use_temp_path=off;
  server {{
    listen 127.0.0.1:{port} ssl http2 backlog=4096;
    ssl_certificate {certificate}; ssl_certificate_key {key}; ssl_protocols TLSv1.3;
    location / {{ proxy_pass http://127.0.0.1:{origin}; proxy_cache c; }}
  }}
}}
"""


def run(*command):
    """Runs a program of a load, and returns what it printed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def h2load(port, seconds, *flags):
    """Sends requests for some seconds. Returns how many were answered."""
    told = run("h2load", "-c", 16, "-D", seconds, *flags, f"--connect-to=127.0.0.1:{port}", f"https://{HOST}/1024")
    succeeded, failed = (int(re.search(rf"(\d+) {word}", told)[1]) for word in ("succeeded", "failed"))
    assert succeeded and not failed, told
    return succeeded


def handshakes(port, seconds):
    """Opens connections for some seconds. Returns how many."""
    told = run("openssl", "s_time", "-new", "-tls1_3", "-connect", f"127.0.0.1:{port}", "-time", seconds)
    return int(re.search(r"(\d+) connections in \d+ real seconds", told)[1])


LOADS = {
    "1 KB over TLS": lambda port, seconds: h2load(port, seconds, "--h1"),
    "1 KB over HTTP/2 with TLS": lambda port, seconds: h2load(port, seconds, "-m", 16),
    "a full handshake": handshakes,
}


def start(folder):
    """Starts both servers in front of one origin."""
    authority(folder, "origin-ca")
    certificate, key = authority(folder, "server", HOST)
    origin = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Origin)
    origin.daemon_threads = True
    threading.Thread(target=origin.serve_forever, daemon=True).start()
    origin_port = origin.server_address[1]
    larder_port, nginx_port = free_port(), free_port()
    flags = f"run --origin http://127.0.0.1:{origin_port} --disk none --memory-cache 64MiB --workers 1".split()
    flags += ["--listen-tls", f"127.0.0.1:{larder_port}", "--certificate", f"{certificate},{key}"]
    larder = Proxy("larder", [PROGRAM, *flags], larder_port, None)
    settings = folder / "nginx.conf"
    settings.write_text(NGINX.format(folder=folder, port=nginx_port, origin=origin_port, certificate=certificate, key=key))
    try:
        return larder, Proxy("nginx", ["nginx", "-p", folder, "-c", settings], nginx_port, None)
    except SystemExit:
        larder.end()
        raise


def measure(servers, rounds, seconds):
    """Prints a row for each load."""
    print("| CPU time, µs | Larder | nginx | Larder / nginx |\n|---|---|---|---|")
    for name, load in LOADS.items():
        costs = [[] for _ in servers]
        for server in servers:
            load(server.port, 1)
        for _ in range(rounds):
            for server, own in zip(servers, costs):
                before = server.seconds()
                count = load(server.port, seconds)
                own.append((server.seconds() - before) / count * 1e6)
        ratios = sorted(larder / nginx for larder, nginx in zip(*costs))
        medians = " | ".join(f"{statistics.median(own):.1f}" for own in costs)
        print(f"| {name} | {medians} | {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="larder-tls.") as folder:
        servers = start(pathlib.Path(folder))
        try:
            measure(servers, wanted.rounds, wanted.seconds)
        finally:
            for server in servers:
                server.end()


if __name__ == "__main__":
    main()
