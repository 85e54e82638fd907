"""A stand-in for the REST server of OpenPAI, API 1 and 2: jobs in memory; a test sets what becomes of their tasks."""

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
from tarkit.openpai.check import completed, problems_in
from tarkit.openpai.jobfile import read_job

TOKEN = "eyJ0.token-of-a-user"  # noqa: S105 (of the stand-in)
_JOB = re.compile(r"/api/v2/jobs/([^/~]+)~([^/]+)(/.*)?|/api/v1/user/([^/]+)/jobs/([^/]+)(/.*)?")
_LOGS = re.compile(r"/attempts/0/taskRoles/(\w+)/taskIndex/(\d+)/attempts/(\d+)/logs")


@dataclass
class PaiServer:
    """url: its address. jobs: by ``user~name``. requests: method, path and authorization of each. fails: status and
    body of the next answers."""

    url: str = ""
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    fails: list[tuple[int, bytes]] = field(default_factory=list)

    def submit(self, user: str, text: str, protocol: int) -> tuple[int, Any]:
        try:
            file = read_job(text, "job")
        except DataError as error:
            return _refusal(400, "InvalidProtocolError", str(error))
        if file.protocol != protocol or (problems := problems_in(file)):
            return _refusal(400, "InvalidProtocolError", str(problems[0] if file.protocol == protocol else "protocol"))
        name = f"{user}~{file.job['jobName' if protocol == 1 else 'name']}"
        if name in self.jobs:
            return _refusal(409, "ConflictJobError", f"The job {name} already exists.")
        sizes = (
            {role["name"]: role["taskNumber"] for role in completed(file.job)["taskRoles"]}
            if protocol == 1
            else {role: value.get("instances", 1) for role, value in file.job["taskRoles"].items()}
        )
        self.texts[name] = text
        self.jobs[name] = {
            "name": name if protocol == 2 else name.partition("~")[2],
            "jobStatus": {"username": user, "state": "RUNNING", "retries": 0},
            "taskRoles": {
                role: {
                    "taskStatuses": [
                        {"taskIndex": index, "taskState": "RUNNING", "containerExitCode": None,
                         "containerLog": f"{self.url}/yarn/{role}/{index}"}
                        for index in range(size)
                    ]
                }
                for role, size in sizes.items()
            },
        }  # fmt: skip
        return (202 if protocol == 2 else 201), {"message": f"Job {name} submitted."}

    def answer(self, method: str, path: str, body: str, kind: str, authorization: str | None) -> tuple[int, Any]:
        path, _, query = path.partition("?")
        path = path.removeprefix("/rest-server")
        if self.fails:
            return self.fails.pop(0)
        if path.startswith("/log/"):
            return 200, f"log {path[5:]}\n".encode()
        if (
            authorization != f"Bearer {TOKEN}"
            and not path.startswith("/api/v1/user/")
            or (method != "GET" and authorization != f"Bearer {TOKEN}")
        ):
            return _refusal(401, "UnauthorizedUserError", "Guest is not allowed to do this operation.")
        if (method, path) == ("POST", "/api/v2/jobs"):
            if kind != "text/yaml":
                return _refusal(400, "InvalidParametersError", f"Content-Type {kind}")
            return self.submit("ada", body, 2)
        if (method, path) == ("GET", "/api/v2/jobs"):
            return 200, [self._row(name) for name in self.jobs]
        if method == "POST" and re.fullmatch(r"/api/v1/user/\w+/jobs", path):
            return self.submit(path.split("/")[4], body, 1)
        match = _JOB.fullmatch(path)
        if match is None:
            return _refusal(404, "NoApiError", path)
        name, rest = f"{match[1] or match[4]}~{match[2] or match[5]}", match[3] or match[6] or ""
        if name not in self.jobs:
            return _refusal(404, "NoJobError", f"Job {name} is not found.")
        if rest == "" and method == "GET":
            return 200, self.jobs[name]
        if rest == "/executionType" and method == "PUT" and json.loads(body) == {"value": "STOP"}:
            self.jobs[name]["jobStatus"]["state"] = "STOPPED"
            return 202, {}
        if logs := _LOGS.fullmatch(rest):
            return 200, {"locations": [{"name": "all", "uri": "/".join((f"{self.url}/log", *logs.groups()))}]}
        return _refusal(404, "NoApiError", path)

    def _row(self, name: str) -> dict[str, Any]:
        tasks = sum(len(role["taskStatuses"]) for role in self.jobs[name]["taskRoles"].values())
        status = self.jobs[name]["jobStatus"]
        row = {"name": name.partition("~")[2], "username": status["username"], "state": status["state"]}
        return {**row, "virtualCluster": "default", "totalGpuNumber": 0, "totalTaskNumber": tasks,
                "createdTime": 0, "completedTime": 0}  # fmt: skip


def _refusal(status: int, code: str, message: str) -> tuple[int, Any]:
    return status, {"code": code, "message": message}


@contextlib.contextmanager
def pai_server() -> Iterator[PaiServer]:
    """A stand-in on a port of its own."""
    state = PaiServer()

    class Handler(BaseHTTPRequestHandler):
        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            state.requests.append((self.command, self.path, self.headers.get("Authorization")))
            kind = self.headers.get("Content-Type", "")
            status, answer = state.answer(self.command, self.path, body, kind, self.headers.get("Authorization"))
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if isinstance(answer, bytes) else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = _any  # noqa: N815

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
