#!/usr/bin/env python3
"""Servers and clients of WebSocket, server-sent events and gRPC, for tests/real/cases/streams.sh.

  streams.py serve SOCKET-PORT EVENT-PORT GRPC-PORT    until it is killed
  streams.py socket|event|grpc PORT                    a client; exits 0 if all came as it was sent

Needs Debian's python3-websockets and python3-grpcio.
"""
import asyncio
import http.client
import http.server
import sys
import threading
import time

import grpc
import websockets

COUNT = 20


async def echo(socket):
    async for message in socket:
        await socket.send(message)


class Events(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        for number in range(COUNT):
            self.wfile.write(b"data: %d %.6f\n\n" % (number, time.monotonic()))
            self.wfile.flush()
            time.sleep(0.1)


class Method(grpc.GenericRpcHandler):
    """One call that echoes, one that answers with a stream, and one that fails, which trailers say."""

    def service(self, details):
        if details.method == "/test.Test/Echo":
            return grpc.unary_unary_rpc_method_handler(lambda request, _: request)
        if details.method == "/test.Test/Count":
            return grpc.unary_stream_rpc_method_handler(lambda request, _: (request * n for n in range(1, COUNT)))
        if details.method == "/test.Test/Both":
            return grpc.stream_stream_rpc_method_handler(lambda requests, _: requests)
        return None


def serve(socket_port, event_port, grpc_port):
    events = http.server.ThreadingHTTPServer(("127.0.0.1", event_port), Events)
    threading.Thread(target=events.serve_forever, daemon=True).start()
    server = grpc.server(__import__("concurrent.futures").futures.ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((Method(),))
    server.add_insecure_port(f"127.0.0.1:{grpc_port}")
    server.start()

    async def run():
        async with websockets.serve(echo, "127.0.0.1", socket_port, max_size=None):
            await asyncio.Future()

    asyncio.run(run())


def socket_client(port):
    async def run():
        async with websockets.connect(f"ws://127.0.0.1:{port}/chat", max_size=None) as socket:
            for length in (0, 1, 125, 126, 65535, 65536, 1 << 20):
                message = bytes(length)
                await socket.send(message)
                assert await asyncio.wait_for(socket.recv(), 20) == message, length
            await socket.send("text")
            assert await asyncio.wait_for(socket.recv(), 20) == "text"

    asyncio.run(run())


def event_client(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", "/events")
    response = connection.getresponse()
    late = []
    for number in range(COUNT):
        words = response.readline().split()
        assert response.readline() == b"\n" and words[:2] == [b"data:", b"%d" % number], words
        late.append(time.monotonic() - float(words[2]))
    # A cache that held the events back until the end would be two seconds late with the first.
    assert sorted(late)[COUNT // 2] < 1, late


def grpc_client(port):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary("/test.Test/Echo")
        for message in (b"", b"hello", bytes(1 << 20)):
            assert call(message, timeout=20) == message
        counted = list(channel.unary_stream("/test.Test/Count")(b"x", timeout=20))
        assert counted == [b"x" * n for n in range(1, COUNT)], counted
        sent = [b"%d" % n for n in range(COUNT)]
        assert list(channel.stream_stream("/test.Test/Both")(iter(sent), timeout=20)) == sent
        try:
            channel.unary_unary("/test.Test/None")(b"", timeout=20)
            raise AssertionError("a method that there is not answers")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNIMPLEMENTED, error


if __name__ == "__main__":
    ports = [int(port) for port in sys.argv[2:]]
    {"serve": serve, "socket": socket_client, "event": event_client, "grpc": grpc_client}[sys.argv[1]](*ports)
