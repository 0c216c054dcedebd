#!/usr/bin/env python3
"""Hit ratio of the memory cache beside that of W-TinyLFU in as many bytes as the process takes for it.

  bench/memory_hits.py                      objects of 200 B, 2 KB and 20 KB
  bench/memory_hits.py --bytes 200          of one length
  bench/memory_hits.py --memory 64MB        the memory cache's size, by default 16 MB
  bench/memory_hits.py --alpha 1.1          another skew of the requests, by default 0.9

Requests for Zipf-distributed objects go to a Larder without a store on disk, one at a time. `larder sim evictions` replays
the same requests through W-TinyLFU, whose size is what the resident memory of the process grew by, and through its model of
the memory cache. For W-TinyLFU, an object has the octets of its head and body, without any overhead. All requests count,
from an empty cache on. Needs the release build with the feature `lab`, or LARDER_BIN.
"""
import argparse
import bisect
import csv
import itertools
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import threading

from memory import bytes_of
from memory_cache import HEAD, PROGRAM, WARM_COUNT, ports, resident, serve_origin

# Requests and objects, in multiples of the objects that fit into the memory cache.
REQUESTS_SHARE = 30
OBJECTS_SHARE = 10
# An entry is not smaller, whatever its length.
ENTRY_BYTES_MIN = 700


class Client:
    """One connection, one request at a time."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        self.lines = self.socket.makefile("rb")

    def is_hit(self, path):
        self.socket.sendall(b"GET %b HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % path.encode())
        status, length, hit = self.lines.readline(), 0, False
        assert b" 200 " in status, status
        while line := self.lines.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
            elif name.lower() == b"cache-status":
                hit = b"hit" in value
        assert len(self.lines.read(length)) == length
        return hit


def requests(object_count, count, alpha):
    """Returns the numbers of the requested objects."""
    weights = itertools.accumulate((number + 1) ** -alpha for number in range(object_count))
    sums = list(weights)
    chance = random.Random(11)
    return [bisect.bisect_left(sums, chance.random() * sums[-1]) for _ in range(count)]


def stored_octets(length):
    """Returns the octets of an object that any cache must keep: the fields, without status line and framing, and the body."""
    lines = (HEAD % length).split(b"\r\n")[1:-2]
    return sum(len(line) + 2 for line in lines if not line.startswith(b"Content-Length")) + length


def live(length, memory, asked):
    """Returns the proxy's hit ratio in percent, and the bytes that its resident memory grew by."""
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve_origin, args=(listener, length), daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="larder-memory-hits.") as folder:
        log_path = pathlib.Path(folder) / "log"
        flags = f"run --listen 127.0.0.1:0 --origin http://127.0.0.1:{listener.getsockname()[1]} --disk none".split()
        flags += ["--memory-cache", str(memory), "--workers", "1", "--admin", "127.0.0.1:0"]
        with open(log_path, "w+b") as log:
            process = subprocess.Popen([PROGRAM, *flags], stdout=log, stderr=log)
            try:
                port, _ = ports(process, log_path)
                client = Client(port)
                # What a process allocates with its first misses is not of the cache.
                for number in range(WARM_COUNT):
                    client.is_hit(f"/warm/{number}")
                before = resident(process)
                hits = sum(client.is_hit(f"/object/{number}") for number in asked)
                return 100 * hits / len(asked), resident(process) - before
            finally:
                process.terminate()
                process.wait(60)


def simulated(length, asked, sizes):
    """Returns the hit ratios in percent of W-TinyLFU in the first of `sizes` and of the model in the second."""
    size = stored_octets(length)
    footprint = len(set(asked)) * size
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as trace:
        trace.writelines(f"{time} object-{number} {size}\n" for time, number in enumerate(asked))
        trace.flush()
        shares = [100 * bytes_ / footprint for bytes_ in sizes]
        command = [PROGRAM, "sim", "evictions", "--trace", trace.name, "--policy", "none", "--output", "csv"]
        command += ["--percent", ",".join(f"{share:.6f}" for share in shares)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    ratios = {}
    for row in csv.reader(printed.splitlines()):
        if row and row[0] in ("w-tinylfu", "memory cache"):
            ratios.setdefault(row[0], []).append(float(row[2]))
    return ratios["w-tinylfu"][0], ratios["memory cache"][1]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--bytes", type=int, nargs="*", default=[200, 2000, 20000], help="lengths of the bodies")
    arguments.add_argument("--memory", type=bytes_of, default=16 * 10**6, help="size of the memory cache")
    arguments.add_argument("--alpha", type=float, default=0.9, help="exponent of Zipf's law")
    options = arguments.parse_args()
    columns = ("body", "requests", "resident", "larder", "w-tinylfu", "model")
    print("".join(f"{column:>11}" for column in columns))
    for length in options.bytes:
        fitting = options.memory // (length + ENTRY_BYTES_MIN)
        asked = requests(OBJECTS_SHARE * fitting, REQUESTS_SHARE * fitting, options.alpha)
        ratio, grown = live(length, options.memory, asked)
        ideal, model = simulated(length, asked, (grown, options.memory))
        print(f"{length:11}{len(asked):11}{grown:11}{ratio:10.1f}%{ideal:10.1f}%{model:10.1f}%", flush=True)


if __name__ == "__main__":
    sys.exit(main())
