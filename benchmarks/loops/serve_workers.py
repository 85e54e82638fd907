"""Many workers of a service: each fetches a task, reports it, and fetches the next one, over a
connection of its own.

Arguments: the protocol, the address, and how many workers. Each line of standard input is a number
of tasks, which are fetched and reported; the answer is a line of JSON. It speaks HTTP/2 by hand and
in one thread: clients of gRPC need more of the machine than a service does, and would be measured
in its place.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

protocol_name, address, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
NAME = "data"


def elasticdl() -> tuple[str, str, Callable[[int], Any], Callable[[bytes, int], Any]]:
    """Of ``proto.Master`` as elasticdl 0.2.0rc3 has it: paths of fetch and report, what a worker
    asks, and what it answers to a reply: its report, and the number of records; None: there is
    no task.
    """
    from elasticdl.proto import elasticdl_pb2

    def report(reply: bytes, _worker: int) -> Any:
        task = elasticdl_pb2.Task.FromString(reply)
        if not task.shard_name:
            return None
        return elasticdl_pb2.ReportTaskResultRequest(task_id=task.task_id), task.end - task.start

    paths = "/proto.Master/get_task", "/proto.Master/report_task_result"
    return *paths, lambda worker: elasticdl_pb2.GetTaskRequest(worker_id=worker), report


def master() -> tuple[str, str, Callable[[int], Any], Callable[[bytes, int], Any]]:
    """The same of ``proto.Master`` as elasticai-api has it, and tarkit."""
    from tarkit.elasticdl.mastercalls import master_protocol

    calls = {call.name: call for call in master_protocol().calls}
    fetch, done = calls["get_dataset_task"], calls["report_dataset_task_result"]

    def report(reply: bytes, _worker: int) -> Any:
        task = fetch.reply.FromString(reply)
        if not task.type:
            return None
        return done.request(task_id=task.task_id, dataset_name=NAME), task.shard.end - task.shard.start

    return fetch.path, done.path, lambda worker: fetch.request(worker_id=worker, dataset_name=NAME), report


def shards() -> tuple[str, str, Callable[[int], Any], Callable[[bytes, int], Any]]:
    """The same of tarkit's own protocol, where one call can report a task and fetch the next one
    (``joined``).
    """
    from tarkit.service.messages import shard_protocol

    (exchange,) = (call for call in shard_protocol().calls if call.name == "Exchange")

    def report(reply: bytes, worker: int) -> Any:
        for lease in exchange.reply.FromString(reply).leases:
            words = {"worker": str(worker), "name": NAME, "reports": [{"token": lease.token}]}
            return exchange.request(**words), lease.end - lease.start
        return None

    return exchange.path, exchange.path, lambda worker: exchange.request(worker=str(worker), name=NAME, want=1), report


def frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    """A frame of HTTP/2."""
    return struct.pack(">I", len(content))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + content


def headers(path: str) -> bytes:
    """The header block of a call: POST, http, and words in full."""
    words = [word.encode() for word in (path, address, "application/grpc", "te", "trailers")]
    before = (b"\x83\x86\x04", b"\x01", b"\x0f\x10", b"\x00", b"")
    return b"".join(each + bytes([len(word)]) + word for each, word in zip(before, words, strict=True))


class Worker:
    """A connection, with one call at a time."""

    left = tasks = records = 0

    def __init__(self, number: int) -> None:
        self.number, self.idle = number, True
        self._request = ask(number).SerializeToString()
        self._stream, self._reports, self._fetches, self._unread, self._reply = -1, False, False, b"", b""
        self.socket = socket.create_connection(tuple(address.split(":")))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        room = struct.pack(">I", (1 << 31) - (1 << 16))
        self.socket.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b"") + frame(WINDOW_UPDATE, 0, 0, room)
        )

    def fetch(self) -> None:
        """Ask for the next task, if more are wanted."""
        self.idle, self._reports = not Worker.left, False
        if not self.idle:
            Worker.left -= 1
            self._call(blocks[0], self._request)

    def read(self) -> None:
        """Take what has come."""
        come = self.socket.recv(1 << 16)
        if not come:
            raise SystemExit("the service closed a connection")
        content, at = self._unread + come, 0
        while len(content) >= at + 9 and len(content) >= (end := at + 9 + int.from_bytes(content[at : at + 3], "big")):
            kind, flags, payload = content[at + 3], content[at + 4], content[at + 9 : end]
            at = end
            if kind in (RESET, GOAWAY):
                raise SystemExit(f"the service broke a call: {payload!r}")
            if kind == DATA:
                self._reply += payload
            elif kind in (SETTINGS, PING) and not flags & ACK:
                self.socket.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                self._answered()
        self._unread = content[at:]

    def _call(self, block: bytes, message: bytes) -> None:
        self._stream += 2
        content = struct.pack(">BI", 0, len(message)) + message
        self.socket.sendall(
            frame(HEADERS, END_HEADERS, self._stream, block) + frame(DATA, END_STREAM, self._stream, content)
        )

    def _answered(self) -> None:
        reply, self._reply = self._reply, b""
        if len(reply) < 5:
            raise SystemExit("the service refused a call")
        if self._reports:
            Worker.tasks += 1
            if not self._fetches:
                self.fetch()
                return
        found = answer(reply[5:], self.number)
        if found is None:
            raise SystemExit("the service has no task any more")
        report, records = found
        self._reports, self._fetches = True, joined and Worker.left > 0
        if self._fetches:
            Worker.left, report.want = Worker.left - 1, 1
        Worker.records += records
        self._call(blocks[1], report.SerializeToString())


joined = protocol_name == "joined"
*paths, ask, answer = {"elasticdl": elasticdl, "master": master}.get(protocol_name, shards)()
blocks = [headers(path) for path in paths]
crowd = [Worker(number) for number in range(workers)]
selector = selectors.DefaultSelector()
for each in crowd:
    selector.register(each.socket, selectors.EVENT_READ, each)
sys.stdout.write("ready\n")
sys.stdout.flush()
for line in sys.stdin:
    Worker.left, Worker.tasks, Worker.records = int(line), 0, 0
    start = time.perf_counter()
    for each in crowd:
        each.fetch()
    while not all(each.idle for each in crowd):
        for key, _ in selector.select():
            key.data.read()
    evidence = {"tasks": Worker.tasks, "records": Worker.records}
    sys.stdout.write(json.dumps({"seconds": time.perf_counter() - start, "evidence": evidence}) + "\n")
    sys.stdout.flush()
