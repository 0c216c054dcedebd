#!/usr/bin/env python3
"""Memory of an entry of the memory cache, as it is charged and as the process takes it.

  bench/memory_cache.py                   entries of 200 B, 2 KB and 20 KB
  bench/memory_cache.py --bytes 200       of one length
  bench/memory_cache.py --count 20000     so many of each

Each length meets a Larder of its own, without a store on disk, whose memory cache has room for all. Printed for each
entry: what it is charged, and what the resident memory grew by, both also without the body. Needs the release build or
LARDER_BIN.
"""
import argparse
import email.utils
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

PROGRAM = os.environ.get("LARDER_BIN", str(pathlib.Path(__file__).resolve().parents[1] / "target/release/larder"))
# The fields of a usual response, which is fresh.
HEAD = (
    b"HTTP/1.1 200 OK\r\nDate: " + email.utils.formatdate(usegmt=True).encode() + b"\r\nServer: nginx\r\nContent-Type: text/css\r\n"
    b"Last-Modified: Sun, 06 Nov 2022 08:49:37 GMT\r\nETag: \"5f3c-1a2b3c4d\"\r\nCache-Control: max-age=86400\r\n"
    b"Accept-Ranges: bytes\r\nContent-Length: %d\r\n\r\n"
)
START_SECONDS = 60


# Misses after which the memory that the process takes without its cache no longer grows.
WARM_COUNT = 12_000


def serve_origin(listener, length):
    """Answers every request on every connection with `length` bytes, storable unless its path begins with /warm."""
    storable = HEAD % length + bytes(length)
    unstorable = storable.replace(b"max-age=86400", b"no-store", 1)

    def serve(connection):
        with connection, connection.makefile("rb") as lines:
            while request := lines.readline():
                while lines.readline().strip():
                    pass
                connection.sendall(unstorable if b" /warm" in request else storable)

    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        self.lines = self.socket.makefile("rb")

    def get(self, path):
        self.socket.sendall(b"GET %b HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % path.encode())
        status, length = self.lines.readline(), 0
        assert b" 200 " in status, status
        while line := self.lines.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return self.lines.read(length)


def resident(process):
    """Returns the resident memory in bytes. It is counted page by page: the sum in /proc/PID/status is up to 256 KiB off."""
    pages = pathlib.Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    return int(re.search(r"^Rss:\s+(\d+)", pages, re.M)[1]) << 10


def charged(admin):
    figures = Client(admin).get("/metrics").decode()
    names = ("larder_memory_cache_bytes", "larder_memory_cache_entries")
    return [int(re.search(rf"^{name} (\d+)", figures, re.M)[1]) for name in names]


def measure(length, count):
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve_origin, args=(listener, length), daemon=True).start()
    room = 2 * count * (length + 4096)
    with tempfile.TemporaryDirectory(prefix="larder-memory-cache.") as folder:
        flags = f"run --listen 127.0.0.1:0 --origin http://127.0.0.1:{listener.getsockname()[1]} --disk none".split()
        flags += ["--memory-cache", str(room), "--workers", "1", "--admin", "127.0.0.1:0"]
        with open(pathlib.Path(folder) / "log", "w+b") as log:
            process = subprocess.Popen([PROGRAM, *flags], stdout=log, stderr=log)
            try:
                return grown(process, pathlib.Path(folder) / "log", count)
            finally:
                process.terminate()
                process.wait(60)


def ports(process, log):
    """Returns the ports of the proxy and of its metrics, once it serves."""
    wait = threading.Event()
    for _ in range(START_SECONDS * 10):
        found = re.findall(r"(?:listen|admin) +http://127\.0\.0\.1:(\d+)", log.read_text(errors="replace"))
        if len(found) == 2:
            return map(int, found)
        if process.poll() is not None:
            break
        wait.wait(0.1)
    sys.exit("larder did not start:\n" + log.read_text(errors="replace"))


def grown(process, log, count):
    port, admin = ports(process, log)
    proxy = Client(port)
    for number in range(WARM_COUNT):
        proxy.get(f"/warm/{number}")
    before, (charged_before, entries_before) = resident(process), charged(admin)
    for number in range(count):
        proxy.get(f"/object/{number}")
    charged_after, entries_after = charged(admin)
    entries = entries_after - entries_before
    assert entries == count, f"{entries} of {count} are kept"
    return (charged_after - charged_before) / entries, (resident(process) - before) / entries


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--bytes", type=int, nargs="*", default=[200, 2000, 20000], help="lengths of the bodies")
    arguments.add_argument("--count", type=int, default=20000, help="entries of each length")
    options = arguments.parse_args()
    print(f"{'body':>8}{'charged':>10}{'resident':>10}{'beside the body':>18}{'':>10}")
    for length in options.bytes:
        charge, real = measure(length, options.count)
        print(f"{length:8}{charge:10.0f}{real:10.0f}{charge - length:18.0f}{real - length:10.0f}", flush=True)


if __name__ == "__main__":
    main()
