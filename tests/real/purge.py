"""What purge.sh asks: makes a file of tagged responses, has an admin listener purge, and looks what is still served.

Everything is printed as one JSON object. Asks the cache alone (only-if-cached), so that no origin is needed.
"""

import argparse
import base64
import hashlib
import http.client
import json
import random
import sys
import time
from datetime import datetime, timezone

SITE = "http://bench.example"


def tags_of(number):
    return f"all t{number % 10} item-{number}"


def write_file(first, count):
    """Writes `count` responses as WARC records to standard output."""
    now = datetime.now(timezone.utc)
    stamp, date = now.strftime("%Y-%m-%dT%H:%M:%SZ"), now.strftime("%a, %d %b %Y %H:%M:%S GMT")
    out = sys.stdout.buffer
    for number in range(first, first + count):
        body = f"{number:>100}".encode()
        digest = base64.b32encode(hashlib.sha1(body).digest()).decode()
        message = (
            f"HTTP/1.1 200 OK\r\nDate: {date}\r\nCache-Control: max-age=86400\r\nETag: \"{number}\"\r\n"
            f"Surrogate-Key: {tags_of(number)}\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        head = (
            f"WARC/1.1\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{number:032x}>\r\nWARC-Date: {stamp}\r\n"
            f"WARC-Target-URI: {SITE}/{number % 100}/{number}\r\nWARC-Payload-Digest: sha1:{digest}\r\n"
            f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(message)}\r\n\r\n"
        ).encode()
        out.write(head + message + b"\r\n\r\n")


def purge(port, lists, soft):
    """Sends a PURGE for each list of tags; tells how long each took."""
    connection, times, refused = http.client.HTTPConnection("127.0.0.1", port), [], 0
    for tags in lists:
        fields = {"Surrogate-Key": tags, "Purge-Mode": "soft" if soft else "hard"}
        since = time.perf_counter()
        connection.request("PURGE", "/", headers=fields)
        response = connection.getresponse()
        response.read()
        times.append(time.perf_counter() - since)
        refused += response.status != 200
    times.sort()
    millis = [round(1000 * times[int(share * (len(times) - 1))], 2) for share in (0.5, 0.99, 1)]
    return {"count": len(times), "refused": refused, "p50_ms": millis[0], "p99_ms": millis[1], "max_ms": millis[2]}


def look(port, numbers):
    """Asks the cache for these; counts what is served, and bodies that are not right."""
    connection, served, wrong, times = http.client.HTTPConnection("127.0.0.1", port), 0, 0, []
    for number in numbers:
        since = time.perf_counter()
        fields = {"Host": "bench.example", "Cache-Control": "only-if-cached"}
        connection.request("GET", f"{SITE}/{number % 100}/{number}", headers=fields)
        response = connection.getresponse()
        body = response.read()
        times.append(time.perf_counter() - since)
        if response.status == 200:
            served += 1
            wrong += body != f"{number:>100}".encode()
    times.sort()
    return {"asked": len(times), "served": served, "wrong": wrong, "p50_us": round(1e6 * times[len(times) // 2])}


def effective(port, admin_port, tag, numbers):
    """Purges a tag, and asks for what it is about from then on; tells when the last was served."""
    since = time.perf_counter()
    purged = purge(admin_port, [tag], False)
    acknowledged_ms = round(1000 * (time.perf_counter() - since), 2)
    return {**look(port, numbers), "refused": purged["refused"], "acknowledged_ms": acknowledged_ms}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["write", "purge", "look", "effective"])
    parser.add_argument("--port", type=int)
    parser.add_argument("--admin-port", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--of", type=int, default=0, help="a sample of so many, instead of the first")
    parser.add_argument("--rest", type=int, help="only those whose number divided by 10 leaves this")
    parser.add_argument("--tag", default="all")
    parser.add_argument("--tags-each", type=int, default=1)
    parser.add_argument("--soft", action="store_true")
    flags = parser.parse_args()
    numbers = range(flags.first, flags.first + flags.count)
    if flags.of:
        known = [number for number in range(flags.of) if flags.rest is None or number % 10 == flags.rest]
        numbers = random.Random(1).sample(known, flags.count)
    if flags.command == "write":
        return write_file(flags.first, flags.count)
    if flags.command == "purge":
        each = flags.tags_each
        lists = [" ".join(f"gone-{at + more}" for more in range(each)) for at in range(flags.first, flags.first + flags.count, each)]
        told = purge(flags.admin_port, lists, flags.soft)
    elif flags.command == "look":
        told = look(flags.port, numbers)
    else:
        told = effective(flags.port, flags.admin_port, flags.tag, numbers)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
