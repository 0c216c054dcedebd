#!/usr/bin/env python3
"""A proxy that is far away: it takes CONNECT, and delays what goes through it, each way, by half of a round trip.

  tests/real/delay_proxy.py PORT MILLISECONDS

For kernels without netem. A connection to the server is made after a whole round trip, as over such a line.
"""

import asyncio
import sys

PORT, ROUND_TRIP_S = int(sys.argv[1]), float(sys.argv[2]) / 1000
CHUNK_BYTES = 256 << 10
IN_FLIGHT_MAX = 256  # chunks of one direction


async def carry(reader, writer):
    """Copies one direction, every chunk half a round trip later than it came."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue(IN_FLIGHT_MAX)

    async def receive():
        chunk = True
        while chunk:
            try:
                chunk = await reader.read(CHUNK_BYTES)
            except OSError:
                chunk = b""
            await queue.put((loop.time() + ROUND_TRIP_S / 2, chunk))

    receiving = asyncio.ensure_future(receive())
    try:
        while True:
            due, chunk = await queue.get()
            await asyncio.sleep(max(0, due - loop.time()))
            if not chunk:
                break
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()
    except OSError:
        pass
    finally:
        receiving.cancel()


async def serve(reader, writer):
    try:
        request = await reader.readuntil(b"\r\n\r\n")
        method, target, _ = request.split(b" ", 2)
        if method != b"CONNECT":
            writer.write(b"HTTP/1.1 501 Not Implemented\r\nContent-Length: 0\r\n\r\n")
            return
        host, _, port = target.decode().rpartition(":")
        await asyncio.sleep(ROUND_TRIP_S)
        to_reader, to_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(carry(reader, to_writer), carry(to_reader, writer))
        to_writer.close()
    except (OSError, ValueError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", PORT)
    async with server:
        await server.serve_forever()


asyncio.run(main())
