#!/usr/bin/env python3
"""Ranges of a file of some gigabytes through larder: an origin that counts, clients that compare.

Called by ranges.sh. The file's bytes follow from their place and from the version, so nothing is kept anywhere.
  ranges.py origin PORT BYTES         serves it; POST /version/N changes it; GET /sent tells chunk by chunk what was sent
  ranges.py clients PROXY URL BYTES   asks, compares every byte, prints verdicts, and fails if one is bad
"""
import http.client
import json
import random
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

CHUNK = 1 << 20
BLOCK = 4096


def body(version, first, last):
    """The bytes from first to last, both included: each block of 4 KiB begins with its number and the version."""
    block, parts = first // BLOCK, []
    while block * BLOCK <= last:
        head = b"%d %d " % (version, block)
        parts.append((head * (BLOCK // len(head) + 1))[:BLOCK])
        block += 1
    return b"".join(parts)[first % BLOCK:][:last - first + 1]


class Origin(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    length, version, sent, lock = 0, 1, {}, threading.Lock()

    def log_message(self, *_):
        pass

    def do_POST(self):
        Origin.version = int(self.path.rsplit("/", 1)[1])
        self.answer(200, b"ok", {})

    def do_GET(self):
        if self.path == "/sent":
            with Origin.lock:
                return self.answer(200, json.dumps(Origin.sent).encode(), {"Cache-Control": "no-store"})
        tag = '"v%d"' % Origin.version
        fields = {"ETag": tag, "Cache-Control": "max-age=600", "Accept-Ranges": "bytes"}
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        first, last, status = 0, Origin.length - 1, 200
        if asked and self.headers.get("If-Range", tag) == tag:
            if asked[1]:
                first, last = int(asked[1]), min(int(asked[2] or last), last)
            else:
                first = max(0, Origin.length - int(asked[2]))
            status = 206
            fields["Content-Range"] = "bytes %d-%d/%d" % (first, last, Origin.length)
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(last - first + 1))
        self.end_headers()
        version, at = Origin.version, first
        while at <= last:
            end = min(last, at // CHUNK * CHUNK + CHUNK - 1)
            self.wfile.write(body(version, at, end))
            with Origin.lock:
                Origin.sent[at // CHUNK] = Origin.sent.get(at // CHUNK, 0) + end - at + 1
            at = end + 1

    def answer(self, status, text, fields):
        self.send_response(status)
        for name, value in {**fields, "Content-Length": str(len(text))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)


class Clients:
    def __init__(self, proxy, url, length):
        self.proxy, self.url, self.length, self.bad = proxy, url, length, 0

    def verdict(self, name, good):
        print("%s  ranges: %s" % ("ok  " if good else "BAD ", name), flush=True)
        self.bad += not good

    def ask(self, ranges, most=None):
        proxy = http.client.HTTPConnection(self.proxy, timeout=120)
        proxy.request("GET", self.url, headers={"Range": "bytes=" + ranges} if ranges else {})
        response = proxy.getresponse()
        try:
            return response.status, response, response.read(most) if most else response.read()
        except http.client.IncompleteRead as broken:
            return 0, response, broken.partial
        finally:
            proxy.close()

    def at_origin(self, method, path):
        origin = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)
        origin.request(method, path)
        return origin.getresponse().read()

    def sent(self):
        return {int(chunk): count for chunk, count in json.loads(self.at_origin("GET", "/sent")).items()}

    def run(self):
        dice, spans = random.Random(4), []
        for _ in range(64):
            first = dice.randrange(self.length)
            spans.append((first, min(self.length - 1, first + dice.randrange(1, 3 * CHUNK))))
        wrong, work = [], list(spans)

        def client():
            while work:
                try:
                    first, last = work.pop()
                except IndexError:
                    return
                status, _, got = self.ask("%d-%d" % (first, last))
                if status != 206 or got != body(1, first, last):
                    wrong.append((first, last, status, len(got)))

        self.ask("0-0")
        threads = [threading.Thread(target=client) for _ in range(16)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.verdict("64 random ranges by 16 clients at once: every byte %s" % (wrong or ""), not wrong)
        asked = {0} | {chunk for first, last in spans for chunk in range(first // CHUNK, last // CHUNK + 1)}
        sent = self.sent()
        self.verdict("only the asked chunks were fetched: %d of %d" % (len(sent), -(-self.length // CHUNK)), set(sent) == asked)
        self.verdict("each of them once", all(count <= CHUNK for count in sent.values()))
        status, response, got = self.ask("0-99,%d-%d,-100" % spans[0])
        parts = [body(1, 0, 99), body(1, *spans[0]), body(1, self.length - 100, self.length - 1)]
        good = status == 206 and response.getheader("Content-Type", "").startswith("multipart/byteranges")
        self.verdict("several ranges in one response", good and all(part in got for part in parts))
        before = sum(self.sent().values())
        start = self.length // 2
        _, _, first_part = self.ask("%d-" % start, 5 * CHUNK + 17)
        end = start + len(first_part) + 3 * CHUNK
        _, _, rest = self.ask("%d-%d" % (start + len(first_part), end))
        self.verdict("aborted and resumed: every byte", first_part + rest == body(1, start, end))
        fetched = sum(self.sent().values()) - before
        self.verdict("aborted and resumed: %d MB fetched for %d" % (fetched >> 20, end - start >> 20), fetched < end - start + 24 * CHUNK)
        self.at_origin("POST", "/version/2")
        torn, mixed = 0, 0
        for _ in range(40):
            first = dice.randrange(self.length - 4 * CHUNK)
            last = first + dice.randrange(1, 4 * CHUNK)
            status, _, got = self.ask("%d-%d" % (first, last))
            torn += status == 0
            mixed += not any(body(version, first, last).startswith(got) for version in (1, 2))
        self.verdict("changed midway: %d broken off, %d of both versions" % (torn, mixed), mixed == 0 and torn <= 4)
        first = dice.randrange(self.length - CHUNK)
        _, _, got = self.ask("%d-%d" % (first, first + 9999))
        self.verdict("afterwards the new version is served", got == body(2, first, first + 9999))
        return self.bad


if __name__ == "__main__":
    if sys.argv[1] == "origin":
        Origin.length = int(sys.argv[3])
        ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Origin).serve_forever()
    sys.exit(Clients(sys.argv[2], sys.argv[3], int(sys.argv[4])).run() > 0)
