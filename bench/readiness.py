#!/usr/bin/env python3
"""Processor time and latency of a request beside idle connections, with several ways to find the ready sockets.

  cargo build --release
  RUSTFLAGS="--cfg mio_unsupported_force_poll_poll" cargo build --release --target-dir target/poll
  bench/readiness.py epoll=target/release/larder poll=target/poll/release/larder

The second build waits for sockets by poll(2), which mio, the library below tokio, offers for tests. Each program runs as a proxy
with one worker. Some clients have had one response each and stay connected (--idle). Beside them, --active connections ask for an
object in memory of 1 KB, --rate requests a second in all, for --time seconds. The table has the processor time of the proxy for
each request, and the median and the 99th percentile of the time until a response, of --runs runs in turn. Needs 12,000 open files.
"""
import argparse
import asyncio
import http.server
import os
import pathlib
import resource
import signal
import subprocess
import tempfile
import threading
import time

BODY = b"y" * 1000
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
TICKS = os.sysconf("SC_CLK_TCK")


class Origin(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Cache-Control", "max-age=600")
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *_):
        pass


def free_port():
    with http.server.HTTPServer(("127.0.0.1", 0), Origin) as server:
        return server.server_address[1]


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def ask(reader, writer):
    writer.write(REQUEST)
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"not a response of 200: {head[:80]}")
    await reader.readexactly(len(BODY))


async def connect(port):
    for _ in range(100):
        try:
            return await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.05)
    raise RuntimeError("the proxy does not accept connections")


async def keep_asking(connection, interval, end, latencies):
    due = time.monotonic()
    while due < end:
        await asyncio.sleep(max(0, due - time.monotonic()))
        began = time.monotonic()
        await ask(*connection)
        latencies.append(time.monotonic() - began)
        due = max(due + interval, began)


async def measure(pid, port, idle_count, options):
    idle = []
    for _ in range(idle_count):
        connection = await connect(port)
        await ask(*connection)
        idle.append(connection)
    active = [await connect(port) for _ in range(options.active)]
    for connection in active:
        await ask(*connection)
    await asyncio.sleep(1)
    latencies = []
    before = processor_seconds(pid)
    end = time.monotonic() + options.time
    interval = options.active / options.rate
    await asyncio.gather(*(keep_asking(connection, interval, end, latencies) for connection in active))
    spent = processor_seconds(pid) - before
    for _, writer in idle + active:
        writer.close()
    latencies.sort()
    at = lambda share: latencies[min(len(latencies) - 1, int(len(latencies) * share))] * 1000
    return spent / len(latencies) * 1e6, at(0.5), at(0.99), len(latencies) / options.time


def run(program, idle_count, options):
    origin = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Origin)
    threading.Thread(target=origin.serve_forever, daemon=True).start()
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "run", "--listen", f"127.0.0.1:{port}", "--workers", "1", "--memory", "512MB"]
        command += ["--origin", f"http://127.0.0.1:{origin.server_address[1]}"]
        environment = {**os.environ, "HOME": folder, "XDG_CACHE_HOME": folder}
        with open(os.path.join(folder, "log"), "wb") as log:
            proxy = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=environment)
        try:
            return asyncio.run(measure(proxy.pid, port, idle_count, options))
        finally:
            proxy.send_signal(signal.SIGTERM)
            proxy.wait(timeout=60)
            origin.shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="+", metavar="NAME=PROGRAM")
    parser.add_argument("--idle", default="0,1000,5000,10000")
    parser.add_argument("--active", type=int, default=16)
    parser.add_argument("--rate", type=float, default=1000, help="requests a second in all")
    parser.add_argument("--time", type=float, default=8, help="seconds")
    parser.add_argument("--runs", type=int, default=2)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    programs = [name.split("=", 1) for name in options.program]
    print("| idle connections | " + " | ".join(f"{name}: us, median ms, p99 ms" for name, _ in programs) + " |")
    print("|--:|" + "--:|" * len(programs))
    for idle_count in map(int, options.idle.split(",")):
        cells = {name: [] for name, _ in programs}
        for _ in range(options.runs):
            for name, program in programs:
                spent, median, last, rate = run(program, idle_count, options)
                late = "" if rate > options.rate * 0.98 else f" ({rate:.0f}/s)"
                cells[name].append(f"{spent:.0f}, {median:.2f}, {last:.2f}{late}")
        print(f"| {idle_count:,} | " + " | ".join("; ".join(cells[name]) for name, _ in programs) + " |", flush=True)


if __name__ == "__main__":
    main()
