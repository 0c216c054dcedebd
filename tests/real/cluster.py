"""What cluster.sh stands on: an origin that counts its fetches, and a client that checks every byte.

  cluster.py origin PORT            serves; /count tells fetches and distinct paths since the last /reset
  cluster.py load PORT,... KIND ... requests, and prints one JSON object; of several ports each connection uses one, and
                                    another one if that does not answer, as clients of a name with several addresses do

The body of a path follows from the path without its utm_ arguments, so that each spelling of a key has the same. The
first part of a path is the tag of its response; bodies of paths below /purge and /kept are short.
"""

import argparse
import asyncio
import hashlib
import json
import random
import time

BODY_BYTES = 10_000


def canonical(path):
    place, _, query = path.partition("?")
    kept = [argument for argument in query.split("&") if argument and not argument.startswith("utm_")]
    return place + ("?" + "&".join(kept) if kept else "")


def body_of(path):
    count = 500 if path.startswith(("/purge/", "/kept/")) else BODY_BYTES
    return hashlib.shake_128(canonical(path).encode()).digest(count)


async def origin(port, delay):
    fetches = {}

    async def serve(reader, writer):
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                target = head.split(b" ", 2)[1].decode()
                path = "/" + target.split("/", 3)[3] if target.startswith("http") else target
                if path == "/reset":
                    fetches.clear()
                if path in ("/count", "/reset"):
                    body = json.dumps({"fetches": sum(fetches.values()), "distinct": len(fetches)}).encode()
                    fields = b"Cache-Control: no-store"
                else:
                    fetches[canonical(path)] = fetches.get(canonical(path), 0) + 1
                    await asyncio.sleep(delay)
                    tag = path.split("/")[1].encode()
                    body, fields = body_of(path), b"Cache-Control: max-age=3600\r\nETag: \"1\"\r\nSurrogate-Key: " + tag
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n\r\n" % (len(body), fields) + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


class Client:
    """One connection. A request on a connection that was used before and is closed without a byte of an answer is
    repeated on a new one, as every client does (RFC 9112 9.3.1)."""

    def __init__(self, ports, host, form):
        self.ports, self.host, self.form, self.open = ports, host, form, None
        self.hits = 0

    async def get(self, path, others=None):
        others = len(self.ports) - 1 if others is None else others
        is_used = self.open is not None
        try:
            return await asyncio.wait_for(self.attempt(path), 20)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            self.open = None
            if getattr(error, "partial", b""):
                return repr(error)
            if is_used:
                return await self.get(path, others)
            if others > 0:
                self.ports = self.ports[1:] + self.ports[:1]
                return await self.get(path, others - 1)
            return repr(error)
        except asyncio.TimeoutError:
            self.open = None
            return "no answer in 20 s"

    async def attempt(self, path):
        if self.open is None:
            self.open = await asyncio.open_connection("127.0.0.1", self.ports[0])
        reader, writer = self.open
        target = f"http://{self.host}{path}" if self.form == "absolute" else path
        writer.write(f"GET {target} HTTP/1.1\r\nHost: {self.host}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = next(int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length:"))
        body = await reader.readexactly(length)
        if "\r\nconnection: close" in head:
            self.open = None
        self.hits += any(line.startswith("cache-status:") and "; hit" in line for line in head.split("\r\n"))
        status = head.split(" ", 2)[1]
        if status != "200":
            return f"status {status}"
        return None if body == body_of(path) else "wrong"


async def load(options):
    urls = [f"/{options.prefix}/{number % 50}/{number}.bin" for number in range(options.urls)]
    spellings = ["{}", "{}?utm_source=mail", "{}?utm_medium=a&utm_campaign=b", "{}?utm_x", "{}?utm_a=1&utm_b&utm_c=3"]
    kept = ["{}?q=1&n=2", "{}?utm_source=mail&q=1&n=2", "{}?q=1&utm_source=x&n=2", "{}?q=1&n=2&utm_b", "{}?utm_a&utm_b=1&q=1&utm_c=2&n=2"]
    if options.spellings:
        half = len(urls) // 2
        paths = [form.format(url) for url in urls[:half] for form in spellings]
        paths += [form.format(url) for url in urls[half:] for form in kept]
    else:
        paths = urls * options.repeat
    random.Random(7).shuffle(paths)
    begun, requests, hits, failures, wrong = time.monotonic(), 0, 0, [], 0
    next_at = 0

    ports = [int(port) for port in options.port.split(",")]

    async def work(number):
        nonlocal requests, hits, wrong, next_at
        first = number % len(ports)
        client = Client(ports[first:] + ports[:first], options.host, options.form)
        while True:
            at = next_at
            next_at += 1
            if options.time:
                due = begun + at / options.rate
                if due > begun + options.time:
                    return
                await asyncio.sleep(max(0, due - time.monotonic()))
            elif at >= len(paths):
                hits += client.hits
                return
            told = await client.get(paths[at % len(paths)])
            requests += 1
            wrong += told == "wrong"
            if told is not None:
                failures.append(told)

    await asyncio.gather(*(work(number) for number in range(options.connections)))
    print(json.dumps({"requests": requests, "hits": hits, "failed": len(failures), "wrong": wrong, "failures": failures[:5]}))


parser = argparse.ArgumentParser()
parser.add_argument("command", choices=["origin", "load"])
parser.add_argument("port")
parser.add_argument("--delay", type=float, default=0.003)
parser.add_argument("--prefix", default="a")
parser.add_argument("--host", default="www.example.test")
parser.add_argument("--form", choices=["origin", "absolute"], default="origin")
parser.add_argument("--urls", type=int, default=1000)
parser.add_argument("--repeat", type=int, default=1)
parser.add_argument("--spellings", action="store_true")
parser.add_argument("--rate", type=float, default=600)
parser.add_argument("--time", type=float, default=0)
parser.add_argument("--connections", type=int, default=32)
parsed = parser.parse_args()
asyncio.run(origin(int(parsed.port), parsed.delay) if parsed.command == "origin" else load(parsed))
