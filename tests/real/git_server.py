"""A server of git repositories: `git http-backend` behind HTTP, and what it sent of each kind on request.

    git_server.py PORT ROOT [CERTIFICATE KEY]

With a certificate it is a server over TLS.
GET /sent answers with the bytes of packs and of all else sent so far, as `PACKS OTHERS`.
"""

import http.server
import os
import ssl
import subprocess
import sys

port, root = int(sys.argv[1]), sys.argv[2]
sent = {"pack": 0, "other": 0}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/sent":
            return self.reply("200 OK", [("Content-Type", "text/plain")], b"%d %d" % (sent["pack"], sent["other"]))
        self.run(b"")

    def do_POST(self):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            body = b""
            while (size := int(self.rfile.readline(), 16)) > 0:
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.run(body)

    def run(self, body):
        path, _, query = self.path.partition("?")
        environment = dict(
            os.environ,
            GIT_PROJECT_ROOT=root,
            GIT_HTTP_EXPORT_ALL="1",
            GIT_PROTOCOL=self.headers.get("Git-Protocol", ""),
            PATH_INFO=path,
            QUERY_STRING=query,
            REQUEST_METHOD=self.command,
            CONTENT_TYPE=self.headers.get("Content-Type", ""),
            CONTENT_LENGTH=str(len(body)),
            HTTP_CONTENT_ENCODING=self.headers.get("Content-Encoding", ""),
            REMOTE_USER="test",
            REMOTE_ADDR="127.0.0.1",
        )
        made = subprocess.run(["git", "http-backend"], input=body, stdout=subprocess.PIPE, env=environment, check=False)
        head, _, content = made.stdout.partition(b"\r\n\r\n")
        fields = [tuple(line.split(": ", 1)) for line in head.decode("latin-1").split("\r\n") if line]
        status = next((value for name, value in fields if name.lower() == "status"), "200 OK")
        sent["pack" if b"packfile" in content[:4096] else "other"] += len(content)
        self.reply(status, [field for field in fields if field[0].lower() != "status"], content)

    def reply(self, status, fields, content):
        code, _, words = status.partition(" ")
        self.send_response(int(code), words)
        for name, value in fields:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
if len(sys.argv) > 3:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[3], sys.argv[4])
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
server.serve_forever()
