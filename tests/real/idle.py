"""Opens many connections to a proxy, uses each once, leaves them idle, and asks for more beside them."""
import selectors
import socket
import sys
import time

port, pid, idle, active = map(int, sys.argv[1:5])
REQUEST = b"GET /page/small HTTP/1.1\r\nHost: localhost\r\n\r\n"


def memory_kib():
    with open(f"/proc/{pid}/status") as status:
        return int(next(line for line in status if line.startswith("VmRSS")).split()[1])


def connect():
    sock = socket.create_connection(("127.0.0.1", port), timeout=20)
    return sock


def ask(socks):
    """Sends a request on each, all at once, and counts whole answers with status 200."""
    waiting, done = selectors.DefaultSelector(), 0
    for sock in socks:
        sock.setblocking(True)
        sock.sendall(REQUEST)
        sock.setblocking(False)
        waiting.register(sock, selectors.EVENT_READ, bytearray())
    end = time.monotonic() + 60
    left = len(socks)
    while left and time.monotonic() < end:
        for key, _ in waiting.select(1):
            try:
                piece = key.fileobj.recv(65536)
            except OSError:
                piece = b""
            key.data.extend(piece)
            head, separator, body = bytes(key.data).partition(b"\r\n\r\n")
            if separator and len(body) >= 1000 or not piece:
                waiting.unregister(key.fileobj)
                left -= 1
                done += head.startswith(b"HTTP/1.1 200")
    return done


def tell(what, before, count):
    """Prints what each of the connections takes at once and a second later."""
    for when in ("at once", "after a second"):
        if when != "at once":
            time.sleep(1)
        now = memory_kib()
        print(f"KiB {what} connection, {when}: {(now - before) / count:.2f} ({before} -> {now} KiB)")


first = connect()
ask([first])
before = memory_kib()
socks = [connect() for _ in range(idle)]
tell("an unused", before, idle)
answered = sum(ask(socks[at : at + 500]) for at in range(0, idle, 500))
tell("a used idle", before, idle)
print(f"answered before: {answered} of {idle}")
more = [connect() for _ in range(active)]
start = time.monotonic()
print(f"answered: {ask(more)} of {active} active in {time.monotonic() - start:.2f} s, beside {idle} idle")
