#!/usr/bin/env python3
"""Long bodies that are a function of their URL: an origin that serves them beside small ones, and clients that check every byte.

  long_bodies.py serve --port P [--validators]   the origin; without --validators it has neither validators nor ranges,
                                                 so that what the proxy lost of a body cannot be fetched again
  long_bodies.py get --port P --numbers A,B,.. --bytes N
                                                 GET /long/A/N .. through the proxy, one after the other
  long_bodies.py small --port P --count N        GET /small/0 .. /small/N-1, in two processes
  long_bodies.py many --port P --bodies N --least BYTES --most BYTES --store BYTES --turnovers T [--seed S]
                                                 bodies of many lengths, new ones and ones asked for before in turn, until the
                                                 store was written T times over; a request that finds no proxy is made again

Results are JSON on standard output, progress goes to standard error. A hit is what Cache-Status (RFC 9211) says.
"""
import argparse
import hashlib
import json
import multiprocessing
import os
import random
import socket
import struct
import sys
import threading
import time

PIECE = 1 << 20
TIMEOUT_S = 60
RETRY_S = 60
PROCESSES = 2
SMALL_AT_ONCE = 8


def pattern(number):
    return hashlib.shake_128(b"long %d" % number).digest(PIECE)


def piece(base, index):
    """The bytes of a body from index * PIECE on."""
    return struct.pack("<Q", index) + base[8:]


def small_body(number):
    seed = hashlib.sha256(b"small %d" % number).digest()
    return (seed * 160)[: 200 + int.from_bytes(seed[:2], "big") % 4700]


def read_head(stream):
    """The first line and the fields of a message; None at the end of the stream."""
    first = stream.readline()
    if not first:
        return None
    fields = {}
    while (line := stream.readline()) not in (b"\r\n", b""):
        name, _, value = line.decode("latin-1").partition(":")
        fields[name.strip().lower()] = value.strip()
    return first.decode("latin-1"), fields


# --- origin


def serve_connection(connection, validators):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream = connection.makefile("rb")
    try:
        while (head := read_head(stream)) is not None:
            answer(connection, head[0].split()[1], head[1], validators)
    except (OSError, ValueError):
        pass  # a client that went away
    finally:
        connection.close()


def answer(connection, path, fields, validators):
    parts = path.strip("/").split("/")
    if parts[0] == "small":
        data = small_body(int(parts[1]))
        connection.sendall(b"HTTP/1.1 200 OK\r\nCache-Control: max-age=86400\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        return
    number, size = int(parts[1]), int(parts[2])
    lines = ["Cache-Control: max-age=86400"]
    first, status = 0, "200 OK"
    if validators:
        tag = f'"{number}-{size}"'
        lines += [f"ETag: {tag}", "Accept-Ranges: bytes"]
        asked = fields.get("range", "")
        if asked.startswith("bytes=") and fields.get("if-range", tag) == tag:
            start, _, last = asked[6:].partition("-")
            first, end = int(start), min(int(last) + 1 if last else size, size)
            status = "206 Partial Content"
            lines.append(f"Content-Range: bytes {first}-{end - 1}/{size}")
            size = end
    head = f"HTTP/1.1 {status}\r\n" + "".join(f"{line}\r\n" for line in lines)
    connection.sendall(f"{head}Content-Length: {size - first}\r\n\r\n".encode())
    base = pattern(number)
    while first < size:
        index, skip = divmod(first, PIECE)
        data = piece(base, index)[skip : skip + size - first]
        connection.sendall(data)
        first += len(data)


def accept(listener, validators):
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve_connection, args=(connection, validators), daemon=True).start()


def serve(options):
    listener = socket.create_server(("127.0.0.1", options.port), backlog=1024)
    for _ in range(PROCESSES - 1):
        multiprocessing.Process(target=accept, args=(listener, options.validators), daemon=True).start()
    accept(listener, options.validators)


# --- clients


class Broken(Exception):
    """An answer that is not what it has to be, or that broke off."""


def get_long(port, number, size):
    """Gets a body, and compares every byte; whether it was a hit, and how long it took to the first byte and to the last."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
        connection.sendall(f"GET /long/{number}/{size} HTTP/1.1\r\nHost: long.example\r\nConnection: close\r\n\r\n".encode())
        stream = connection.makefile("rb", buffering=PIECE)
        head = read_head(stream)
        if head is None:
            raise Broken("no answer")
        line, fields = head
        if " 200 " not in line or fields.get("content-length") != str(size):
            raise Broken(f"{line.strip()}, Content-Length {fields.get('content-length')}")
        base, index, first_s = pattern(number), 0, None
        while index * PIECE < size:
            length = min(PIECE, size - index * PIECE)
            data = stream.read(length)
            first_s = first_s or time.monotonic() - began
            expected = piece(base, index)[:length]
            if data != expected:
                whole = data == expected[: len(data)]
                raise Broken(f"{'broke off' if whole else 'WRONG BYTES'} at {index * PIECE + len(data)} of {size}")
            index += 1
    status = fields.get("cache-status", "")
    return "; hit" in status, first_s, time.monotonic() - began


def get(options):
    results = {"asked": 0, "hits": 0, "broken": 0, "seconds": 0, "failures": []}
    for number in map(int, options.numbers.split(",")):
        results["asked"] += 1
        try:
            hit, first_s, seconds = get_long(options.port, number, options.bytes)
            results["hits"] += hit
            results["seconds"] += seconds
            rate = options.bytes / seconds / 1e6
            print(f"  body {number}: {'hit' if hit else 'miss'}, first byte after {first_s * 1000:.0f} ms, {rate:.0f} MB/s", file=sys.stderr)
        except (Broken, OSError) as error:
            results["broken"] += 1
            results["failures"].append(f"body {number}: {error}")
            print(f"  body {number}: {error}", file=sys.stderr)
    print(json.dumps(results))


def get_small(port, numbers, total, wrong):
    connection = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream = connection.makefile("rb")
    for count, number in enumerate(numbers):
        connection.sendall(b"GET /small/%d HTTP/1.1\r\nHost: long.example\r\n\r\n" % number)
        line, fields = read_head(stream)
        data = stream.read(int(fields["content-length"]))
        if " 200 " not in line or data != small_body(number):
            with wrong.get_lock():
                wrong.value += 1
        if count % 100 == 99:
            with total.get_lock():
                total.value += 100


def small_process(port, numbers, total, wrong):
    threads = [
        threading.Thread(target=get_small, args=(port, numbers[part::SMALL_AT_ONCE], total, wrong)) for part in range(SMALL_AT_ONCE)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def small(options):
    total, wrong = multiprocessing.Value("l", 0), multiprocessing.Value("l", 0)
    processes = [
        multiprocessing.Process(target=small_process, args=(options.port, range(part, options.count, PROCESSES), total, wrong))
        for part in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    began = told = time.monotonic()
    while any(process.is_alive() for process in processes):
        processes[0].join(1)
        if time.monotonic() - told >= 10:
            told = time.monotonic()
            print(f"  {total.value} of {options.count} small bodies, {total.value / (told - began):.0f}/s", file=sys.stderr)
    failed = sum(process.exitcode != 0 for process in processes)
    print(json.dumps({"asked": options.count, "wrong": wrong.value, "failed": failed}))


def get_again(port, number, size):
    """As get_long; a proxy that is being started again is waited for, and an answer that its end broke off is no fault."""
    end = time.monotonic() + RETRY_S
    while True:
        try:
            return get_long(port, number, size)
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def many(options):
    chance = random.Random(options.seed)
    sizes = [chance.randint(options.least, options.most) for _ in range(options.bodies)]
    results = {"asked": 0, "hits": 0, "broken": 0, "restarts": 0, "failures": []}
    written, asked, began = 0, [], time.monotonic()
    while written < options.turnovers * options.store:
        new = not asked or chance.random() < 0.5
        number = chance.randrange(options.bodies) if new else chance.choice(asked[-20:])
        results["asked"] += 1
        try:
            hit, _, _ = get_again(options.port, number, sizes[number])
            results["hits"] += hit
            written += 0 if hit else sizes[number]
            asked.append(number)
        except (Broken, OSError) as error:
            if options.restarts and os.path.exists(options.restarts):  # it is being killed and started again
                results["restarts"] += 1
            else:
                results["broken"] += 1
                results["failures"].append(f"body {number}: {error}")
                print(f"  body {number}: {error}", file=sys.stderr)
        share = written / (options.turnovers * options.store)
        if results["asked"] % 10 == 0:
            minutes = (time.monotonic() - began) / 60
            print(f"  {results['asked']} answers, {results['hits']} hits, {share:.0%}, {minutes:.1f} min", file=sys.stderr)
    print(json.dumps(results))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["serve", "get", "small", "many"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--validators", action="store_true")
    parser.add_argument("--numbers", default="")
    for name in ("bytes", "count", "bodies", "least", "most", "store", "turnovers"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--restarts", default="", help="a file that exists while the proxy is killed and started again")
    options = parser.parse_args()
    {"serve": serve, "get": get, "small": small, "many": many}[options.what](options)


if __name__ == "__main__":
    main()
