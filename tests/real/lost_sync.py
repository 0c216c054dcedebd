#!/usr/bin/env python3
"""A disk of which one sync fails and loses what was written since the last good one; later syncs succeed.

  tests/real/lost_sync.py                      every policy, killed and stopped; as root
  tests/real/lost_sync.py tiny log             these policies

Each round stores responses, replaces some and purges others, lets the next sync lose, stores more, ends the process with
kill -9 or SIGTERM, and starts it again. It passes if no purged response is back and no replaced one is old, neither while it
runs nor after the start, and if the responses that were stored after the lost sync are found. LARDER_BIN names the program,
JOBS the number of rounds at once, TMPDIR a folder for the mounts. The file system is losing_fs.c; it needs libfuse3-dev, fuse3.
"""
import concurrent.futures
import http.client
import http.server
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LARDER = os.environ.get("LARDER_BIN", f"{HERE}/../../target/release/larder")
REPLACED, PURGED, KEPT, LATER = range(0, 60), range(60, 120), range(120, 180), range(180, 240)
SYNCED_AFTER_S = 7
PATIENCE_S = 60
# Where two keys of a set have the same place or tag, the later one displaces the other.
MAY_LOSE = {"hashcache-basic": 6, "hashcache-set": 3, "hashcache-setmem": 1, "hashcache-setmem-lru": 1, "hashcache-log-lru": 1}


def body(number, version):
    return f"{number} {version} ".encode() * (100 + number % 50 * 20)


class Origin(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        number = int(self.path.rsplit("/", 1)[1])
        data = body(number, self.server.version)
        self.send_response(200)
        for name, value in {"Content-Length": len(data), "Cache-Control": "max-age=86400", "ETag": f'"{self.server.version}"'}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


class Round:
    def __init__(self, policy, ending, last, tool):
        self.policy, self.ending, self.last = policy, ending, last
        self.stage = tempfile.mkdtemp(prefix="larder-sync.")
        for name in ("root", "mount"):
            os.mkdir(f"{self.stage}/{name}")
        self.control = f"{self.stage}/control"
        arguments = [tool, f"{self.stage}/root", self.control, f"{self.stage}/mount", "-f", "-s"]
        self.fs = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: os.path.ismount(f"{self.stage}/mount"), "the file system")
        self.origin = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Origin)
        self.origin.version = 1
        threading.Thread(target=self.origin.serve_forever, daemon=True).start()
        self.log = f"{self.stage}/log"
        self.larder = None

    def start(self):
        with open(self.log, "a") as log:
            begin = log.tell()
            flags = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--disk", f"{self.stage}/mount/store", "--size", "64MiB",
                     "--policy", self.policy, "--memory-cache", "0", "--memory", "64MB", "--mean-object-size", "4KiB",
                     "--origin", f"http://127.0.0.1:{self.origin.server_port}"]
            self.larder = subprocess.Popen([LARDER, "run", *flags], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        found = {}

        def is_up():
            if self.larder.poll() is not None:
                raise RuntimeError(f"larder ended with {self.larder.returncode}")
            with open(self.log) as log:
                log.seek(begin)
                said = log.read()
            for name, pattern in {"port": r"listen\S*\s[^\n]*?127\.0\.0\.1:(\d+)", "admin": r"(?:admin|dashboard)[^\n]*?127\.0\.0\.1:(\d+)"}.items():
                if match := re.search(pattern, said):
                    found[name] = int(match[1])
            return len(found) == 2

        wait_for(is_up, "larder")
        self.port, self.admin = found["port"], found["admin"]
        wait_for(lambda: self.figure("larder_store_loaded") == 1, "loading")

    def end(self):
        self.larder.send_signal(signal.SIGKILL if self.ending == "kill" else signal.SIGTERM)
        self.larder.wait(PATIENCE_S)

    def ask(self, port, method, number, **fields):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        is_purge = method == "PURGE"
        host = f"127.0.0.1:{port}" if is_purge else "site.test"
        target = f"http://site.test/e/{number}" if is_purge else f"/e/{number}"
        fields = {name.replace("_", "-"): value for name, value in fields.items()}
        connection.request(method, target, headers={"Host": host, **fields})
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, data

    def figure(self, name):
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=PATIENCE_S)
        connection.request("GET", "/metrics")
        page = connection.getresponse().read().decode()
        connection.close()
        lines = [line.rsplit(" ", 1) for line in page.splitlines() if re.match(rf"{name}[ {{]", line)]
        return sum(float(value) for _, value in lines)

    def fetch(self, numbers, **fields):
        for number in numbers:
            status, data = self.ask(self.port, "GET", number, **fields)
            assert status == 200 and data == body(number, self.origin.version), f"{number}: {status}"

    def stored(self, numbers):
        """The stored bodies by number, without asking the origin."""
        answers = {number: self.ask(self.port, "GET", number, Cache_Control="only-if-cached") for number in numbers}
        return {number: data for number, (status, data) in answers.items() if status == 200}

    def change(self):
        def replace():
            self.origin.version = 2
            self.fetch(REPLACED, Cache_Control="no-cache")
            self.origin.version = 1

        def purge():
            for number in PURGED:
                status, _ = self.ask(self.admin, "PURGE", number)
                assert status in (200, 204, 404), f"PURGE {number}: {status}"

        for step in (purge, replace) if self.last == "replacements" else (replace, purge):
            step()

    def broken(self):
        """How many purged responses are back, and how many replaced ones are old."""
        replaced = self.stored(REPLACED)
        old = sum(data != body(number, 2) for number, data in replaced.items())
        return len(self.stored(PURGED)), old

    def run(self):
        self.start()
        self.fetch([*REPLACED, *PURGED, *KEPT])
        time.sleep(SYNCED_AFTER_S)
        self.change()
        open(self.control, "w").close()
        # On a slow machine the last change may be synced already.
        self.fetch([LATER.stop])
        wait_for(lambda: not os.path.exists(self.control), "the sync that loses")
        wait_for(lambda: self.figure("larder_store_volumes_failed") == 0, "the volume to be used again")
        time.sleep(1)
        running = self.broken()
        # The volume may still be loading or writing removals; until then it stores nothing.
        wait_for(lambda: self.figure("larder_store_removals_waiting") == 0 and self.figure("larder_store_loaded") == 1, "the removals")
        self.fetch(LATER)
        time.sleep(SYNCED_AFTER_S)
        self.end()
        self.start()
        restarted = self.broken()
        later, kept = len(self.stored(LATER)), len(self.stored(KEPT))
        self.larder.terminate()
        self.larder.wait(PATIENCE_S)
        with open(self.log) as log:
            panics = log.read().count("panicked")
        passed = running == restarted == (0, 0) and later >= len(LATER) - MAY_LOSE.get(self.policy, 0) and panics == 0
        figures = f"purged back {running[0]}, {restarted[0]}; old {running[1]}, {restarted[1]}; found {later} of {len(LATER)} later and {kept} of {len(KEPT)} earlier"
        return passed, figures

    def clean_up(self, keeps):
        if self.larder and self.larder.poll() is None:
            self.larder.kill()
            self.larder.wait()
        self.origin.shutdown()
        subprocess.run(["umount", f"{self.stage}/mount"], check=False)
        self.fs.terminate()
        self.fs.wait(PATIENCE_S)
        if keeps:
            print(f"kept {self.log}")
        else:
            shutil.rmtree(self.stage, ignore_errors=True)


def wait_for(condition, what):
    end = time.time() + PATIENCE_S
    while not condition():
        if time.time() > end:
            raise TimeoutError(f"waited {PATIENCE_S} s for {what}")
        time.sleep(0.1)


def one(arguments):
    round_ = Round(*arguments)
    passed, figures = False, ""
    try:
        passed, figures = round_.run()
    except (AssertionError, OSError, RuntimeError, http.client.HTTPException, subprocess.TimeoutExpired) as error:
        figures = f"{type(error).__name__}: {error}"
    finally:
        round_.clean_up(not passed)
    print(f"{'PASS' if passed else 'FAIL'}  {round_.policy}, {round_.ending}, {round_.last} last: {figures}", flush=True)
    return passed


def main():
    policies = sys.argv[1:]
    if not policies:
        said = subprocess.run([LARDER, "run", "--policy", "no-such-policy"], capture_output=True, text=True).stderr
        said = re.sub(r"[\s│]+", " ", said).replace("- ", "-")
        policies = re.search(r"the policies are ([a-z0-9, -]*[a-z0-9])", said)[1].split(", ")
    tools = tempfile.mkdtemp(prefix="larder-tool.")
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True, check=True).stdout.split()
    subprocess.run(["cc", "-O2", f"{HERE}/losing_fs.c", "-o", f"{tools}/losing_fs", *flags], check=True)
    rounds = [(policy, ending, last, f"{tools}/losing_fs") for policy in policies for ending in ("kill", "stop") for last in ("replacements", "purges")]
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", "4"))) as pool:
        passed = list(pool.map(one, rounds))
    shutil.rmtree(tools)
    print(f"\n{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    sys.exit(not all(passed))


if __name__ == "__main__":
    main()
