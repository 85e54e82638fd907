"""A stand-in for the REST server of OpenPAI, API 1 and 2: which takes jobs."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tarkit.errors import DataError
from tarkit.openpai.check import problems_in
from tarkit.openpai.jobfile import read_job

TOKEN = "eyJ0.token-of-a-user"


@dataclass
class PaiServer:
    """Attributes:
    url: its address.
    texts: of the jobs, by ``user~name``.
    fails: status and body of the next answers.
    """

    url: str = ""
    texts: dict[str, str] = field(default_factory=dict)
    fails: list[tuple[int, bytes]] = field(default_factory=list)

    def submit(self, user: str, text: str, protocol: int) -> tuple[int, Any]:
        try:
            file = read_job(text, "job")
        except DataError as error:
            return _refusal(400, "InvalidProtocolError", str(error))
        if file.protocol != protocol or (problems := problems_in(file)):
            return _refusal(400, "InvalidProtocolError", str(problems[0] if file.protocol == protocol else "protocol"))
        name = f"{user}~{file.job['jobName' if protocol == 1 else 'name']}"
        if name in self.texts:
            return _refusal(409, "ConflictJobError", f"The job {name} already exists.")
        self.texts[name] = text
        return (202 if protocol == 2 else 201), {"message": f"Job {name} submitted."}

    def answer(self, method: str, path: str, body: str, kind: str, authorization: str | None) -> tuple[int, Any]:
        path = path.partition("?")[0].removeprefix("/rest-server")
        if self.fails:
            return self.fails.pop(0)
        if authorization != f"Bearer {TOKEN}":
            return _refusal(401, "UnauthorizedUserError", "Guest is not allowed to do this operation.")
        if (method, path) == ("POST", "/api/v2/jobs"):
            if kind != "text/yaml":
                return _refusal(400, "InvalidParametersError", f"Content-Type {kind}")
            return self.submit("ada", body, 2)
        if (method, path) == ("GET", "/api/v2/jobs"):
            return 200, [self._row(name) for name in self.texts]
        if method == "POST" and re.fullmatch(r"/api/v1/user/\w+/jobs", path):
            return self.submit(path.split("/")[4], body, 1)
        if method == "GET" and (name := path.removeprefix("/api/v2/jobs/")) in self.texts:
            return 200, {"name": name, "jobStatus": self._row(name), "taskRoles": {}}
        return _refusal(404, "NoApiError", path)

    def _row(self, name: str) -> dict[str, Any]:
        user, _, short = name.partition("~")
        return {"name": short, "username": user, "state": "RUNNING", "virtualCluster": "default", "retries": 0,
                "totalGpuNumber": 0, "totalTaskNumber": 4, "createdTime": 0, "completedTime": 0}  # fmt: skip


def _refusal(status: int, code: str, message: str) -> tuple[int, Any]:
    return status, {"code": code, "message": message}


@contextlib.contextmanager
def pai_server() -> Iterator[PaiServer]:
    """A stand-in on a port of its own."""
    state = PaiServer()

    class Handler(BaseHTTPRequestHandler):
        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            kind = self.headers.get("Content-Type", "")
            status, answer = state.answer(self.command, self.path, body, kind, self.headers.get("Authorization"))
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if isinstance(answer, bytes) else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _any

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
