"""As much of the Hub's HTTP API as pushing and loading a run takes, on this machine, kept in a dict."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SHA = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Repositories by name, each a dict of path -> bytes, and the tokens that were sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.log: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, format: str, *arguments: object) -> None:
        self.server.log.append(format % arguments)

    def answer(self, value: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def missing(self) -> None:
        self.answer({"error": "not found"}, 404, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "not found"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Authorization") != "Bearer hf_for_a_test":
            return self.answer({"error": "no such token"}, 401)
        if self.path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        if self.path == "/api/repos/create":
            wanted = json.loads(body)
            name = f"{wanted['organization']}/{wanted['name']}" if wanted.get("organization") else wanted["name"]
            self.server.repositories.setdefault(name, {})
            self.server.private[name] = bool(wanted.get("private")) or wanted.get("visibility") == "private"
            return self.answer({"url": f"{self.server.address}/{name}", "id": name, "name": name})
        name, _, what = self.path.removeprefix("/api/models/").partition("/main")[0].rpartition("/")
        if what == "preupload":
            files = [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in json.loads(body)["files"]
            ]
            return self.answer({"files": files})
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                self.server.repositories[name][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        self.answer({"commitUrl": f"{self.server.address}/{name}/commit/{SHA}", "commitOid": SHA})

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/":
            return self.answer({})
        if path.startswith("/api/models/"):
            name = "/".join(path.split("/")[3:5])
            files = self.server.repositories.get(name)
            if files is None:
                return self.missing()
            if "/tree/" in path:
                return self.answer([entry(file, data) for file, data in files.items()])
            return self.answer({"id": name, "sha": SHA, "siblings": [{"rfilename": file} for file in files]})
        name, _, file = path.strip("/").partition("/resolve/")
        found = self.server.repositories.get(name, {}).get(file.partition("/")[2])
        if found is None:
            return self.missing()
        etag = f'"{hashlib.sha1(found).hexdigest()}"'
        self.answer(found, headers={"ETag": etag, "X-Repo-Commit": SHA, "Accept-Ranges": "bytes"})

    do_HEAD = do_GET


def entry(file: str, data: bytes) -> dict[str, object]:
    return {"type": "file", "path": file, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}


@contextmanager
def hub() -> Iterator[Hub]:
    """A hub on a free port, for the length of a with block."""
    server = Hub()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
