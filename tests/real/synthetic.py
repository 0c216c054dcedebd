#!/usr/bin/env python3
"""Bodies that are a function of their URL: an origin that serves them, and a client that checks them byte by byte.

  synthetic.py serve --port P                 the origin; GET /count answers how many bodies it has served
  synthetic.py fetch --port P --first A --count N [--log FILE]
                                              GET /e/A .. /e/A+N-1, 16 at a time; each body checked; the log gets
                                              "number unix-time" for each complete answer
  synthetic.py sample --port P --count N --seed S (--first A --of M | --log FILE --before T)
                                              N distinct numbers out of a range, or out of those a log says were
                                              complete before T; prints requests, hits, wrong and failed
  synthetic.py first-hit --port P --first A --of M --timeout S
                                              asks without a pause, from before the proxy listens, until there is a hit;
                                              prints the unix time of it

Ten numbers in a row have a Referer in common, as what one page brings in; a hundred in a row come from one of eight
sites. Hits are what Cache-Status (RFC 9211) says; the results are JSON on standard output.
"""
import argparse
import hashlib
import http.client
import http.server
import json
import random
import socket
import sys
import threading
import time

CONNECTIONS = 16
TIMEOUT_S = 30


def body(number):
    """Mostly a few kilobytes, some up to 100 KB: the sizes of a web cache."""
    seed = hashlib.sha256(b"%d" % number).digest()
    size = 200 + int.from_bytes(seed[:2], "big") % 8000
    if seed[2] < 20:
        size += int.from_bytes(seed[3:6], "big") % 100_000
    return hashlib.shake_128(seed).digest(size)


class Origin(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    served = 0
    lock = threading.Lock()

    def setup(self):
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def do_GET(self):
        if self.path == "/count":
            data = json.dumps(Origin.served).encode()
            headers = {"Cache-Control": "no-store"}
        elif self.path.startswith("/e/") and self.path[3:].isdigit():
            data = body(int(self.path[3:]))
            headers = {"Cache-Control": "max-age=86400", "Last-Modified": "Sat, 01 Jan 2000 00:00:00 GMT"}
            with Origin.lock:
                Origin.served += 1
        else:
            return self.send_error(404)
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        date = self.date_time_string()
        self.wfile.write(f"HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Length: {len(data)}\r\n{head}\r\n".encode() + data)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 1024

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):  # a killed proxy is what these tests are about
            super().handle_error(request, client_address)


class Client:
    """One connection; opens again when it was closed."""

    def __init__(self, port):
        self.port, self.connection = port, None

    def get(self, number):
        """(complete and right, hit); raises OSError or HTTPException when there was no complete answer."""
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        try:
            site = f"site{number // 100 % 8}.test"
            fields = {"Host": site, "Referer": f"http://{site}/page/{number // 10}"}
            self.connection.request("GET", f"/e/{number}", headers=fields)
            answer = self.connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException):
            self.connection.close()
            self.connection = None
            raise
        status = answer.getheader("Cache-Status", "")
        hit = any(part.strip() == "hit" for part in status.split(";"))
        return answer.status == 200 and data == body(number), hit


def over(port, numbers, seen):
    """Gets all numbers over several connections; calls seen(number, right, hit) for each, right None if it failed."""
    left = iter(numbers)
    lock = threading.Lock()

    def work():
        client = Client(port)
        while True:
            with lock:
                number = next(left, None)
            if number is None:
                return
            try:
                right, hit = client.get(number)
            except (OSError, http.client.HTTPException):
                right, hit = None, False
            with lock:
                seen(number, right, hit)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(CONNECTIONS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def fetch(port, numbers, log=None):
    result = {"requests": 0, "hits": 0, "wrong": 0, "failed": 0}

    def seen(number, right, hit):
        result["requests"] += 1
        result["hits"] += hit
        result["wrong"] += right is False
        result["failed"] += right is None
        if log and right:
            log.write(f"{number} {time.time():.3f}\n")
            log.flush()

    start = time.time()
    over(port, numbers, seen)
    result["seconds"] = round(time.time() - start, 2)
    result["hit_percent"] = round(100 * result["hits"] / max(1, result["requests"]), 3)
    return result


def complete_before(path, moment):
    with open(path) as log:
        pairs = [line.split() for line in log if line.endswith("\n")]
    return [int(number) for number, at in pairs if float(at) < moment]


def first_hit(port, numbers, timeout):
    client = Client(port)
    end = time.time() + timeout
    while time.time() < end:
        number = next(numbers)
        try:
            right, hit = client.get(number)
        except (OSError, http.client.HTTPException):
            time.sleep(0.002)
            continue
        if hit:
            return {"at": time.time(), "right": right}
    return {"at": None, "right": False}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["serve", "fetch", "sample", "first-hit"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--of", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log")
    parser.add_argument("--before", type=float, default=0)
    parser.add_argument("--timeout", type=float, default=30)
    a = parser.parse_args()
    chance = random.Random(a.seed)
    if a.command == "serve":
        Server(("127.0.0.1", a.port), Origin).serve_forever()
    elif a.command == "fetch":
        log = open(a.log, "w") if a.log else None
        print(json.dumps(fetch(a.port, range(a.first, a.first + a.count), log)))
    elif a.command == "sample":
        known = complete_before(a.log, a.before) if a.log else range(a.first, a.first + a.of)
        print(json.dumps(fetch(a.port, chance.sample(known, min(a.count, len(known))))))
    else:
        numbers = iter(lambda: chance.randrange(a.first, a.first + a.of), None)
        print(json.dumps(first_hit(a.port, numbers, a.timeout)))


if __name__ == "__main__":
    sys.exit(main())
