"""A signal in each phase of publishing: the program ends within 5 s, and under the name is the
whole object or none.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import random
import signal
import subprocess
import tarfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import webhdfs_server
from heldstart import held_start
from httpserver import Fault as HttpFault
from httpserver import FaultServer
from installed import program_path
from s3_client import s3_bucket
from s3proxy import Fault, s3_proxy
from tarproc_support import gone
from waiting import on_this_machine, wait_for
from webhdfs_server import Handler

DATA = b""
"""A part of S3 and a rest, in memory only while the tests of this file run."""
SMALL = random.Random(4).randbytes(1000)
SIGNALS = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture(scope="module", autouse=True)
def large_content() -> Iterator[None]:
    global DATA  # noqa: PLW0603 - each fork of a worker takes the longer the more it holds
    DATA = random.Random(4).randbytes((8 << 20) + 100_000)
    yield
    DATA = b""


class Hold:
    """A request that a server keeps until the test has seen enough.

    Attributes:
        reached: it has come.
    """

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.release = threading.Event()

    def __call__(self, *ignored: Any) -> None:
        self.reached.set()
        self.release.wait(120)


def problems_of(
    command: list[str], number: signal.Signals, hold: Hold, folder: Path, environment: dict[str, str] | None = None
) -> list[str]:
    """What is wrong with how a program ends by a signal that comes while a request is held."""
    process = subprocess.Popen(
        [program_path(command[0]), *command[1:]],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        wait_for(lambda: hold.reached.is_set() or process.poll() is not None)
        begin = time.monotonic()
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        seconds = time.monotonic() - begin
    finally:
        process.kill()
        process.wait()
        hold.release.set()
    name = "interrupted" if number == signal.SIGINT else "terminated"
    found = [] if hold.reached.is_set() else ["the request never came"]
    found += [] if process.returncode == 128 + number else [f"exit code {process.returncode}"]
    found += [f"it took {seconds:.1f} s"] if seconds > on_this_machine(5) else []
    found += [] if errors.decode().splitlines()[-1:] == [f"{command[0]}: {name}"] else [errors.decode()]
    return found


def all_well(cases: list[tuple[str, Callable[[signal.Signals], list[str]]]]) -> None:
    """Run all cases, a few at a time; the signals take turns."""
    with ThreadPoolExecutor(4) as pool:
        running = {name: pool.submit(case, SIGNALS[at % 2]) for at, (name, case) in enumerate(cases)}
        found = {name: future.result() for name, future in running.items()}
    assert {name: problems for name, problems in found.items() if problems} == {}


# Local files, while what they are made of does not come


def local_case(command: list[str], folder: Path, number: signal.Signals) -> list[str]:
    folder.mkdir()
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for index in range(20):
            member = tarfile.TarInfo(f"{index}.bin")
            member.size = 300_000
            archive.addfile(member, io.BytesIO(DATA))
    hold = Hold()
    with FaultServer() as server:
        url = server.put("k.tar", content.getvalue(), always=HttpFault("stall", 5_000_000))

        def written() -> None:
            # A name of its own until the whole is there.
            wait_for(lambda: any(".tarkit-" in path.name and not is_run_record(path) for path in folder.rglob("*")))
            hold.reached.set()

        watcher = threading.Thread(target=written)
        watcher.start()
        found = problems_of([word.replace("URL", url) for word in command], number, hold, folder)
        watcher.join()
    return found + [f"{path.name} is left" for path in folder.rglob("*") if path.is_file() and not is_run_record(path)]


def is_run_record(path: Path) -> bool:
    """Whether it is what a run writes when it begins, or is on its way to be."""
    return ".tarkit-run-" in path.name


def test_local(tmp_path: Path) -> None:
    commands = {
        "split": ["tarkit", "split", "URL", "-o", "out-%d.tar"],
        "tarproc -O": ["tarproc", "-q", "-c", "true", "URL", "-O", "out"],
    }
    all_well(
        [
            (name, lambda number, name=name: local_case(commands[name], tmp_path / name, number))  # type: ignore[misc]
            for name in commands
        ]
    )


# The input of a command


def test_a_command_that_is_just_being_started_sees_no_end_of_its_input(tmp_path: Path) -> None:
    """It runs already, and the program does not know its process yet: it would publish an empty
    object.
    """
    (tmp_path / "a").write_bytes(SMALL)
    target = f"pipe:touch begun; cat > {tmp_path}/copy; touch published"
    words = [program_path("tarkit"), "cat", "--raw", "a", "-o", target]
    with open(tmp_path / "errors", "wb") as errors:
        environment = {**os.environ, **held_start(tmp_path)}
        process = subprocess.Popen(words, cwd=tmp_path, stderr=errors, env=environment)
    try:
        wait_for(lambda: (tmp_path / "begun").exists() or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        (tmp_path / "go").touch()
        assert process.wait(120) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()
    assert (tmp_path / "errors").read_text() == "tarkit: terminated\n"
    assert gone(str(tmp_path / "copy")) and not (tmp_path / "published").exists()


# s3

S3_PHASES = {
    "look before": "head",
    "put": "put",
    "part": "part",
    "complete": "complete",
}


def s3_case(server: str, phase: str, folder: Path, number: signal.Signals) -> list[str]:
    operation = S3_PHASES[phase]
    data = DATA if operation in ("part", "complete") else SMALL
    folder.mkdir()
    (folder / "a").write_bytes(data)
    hold = Hold()
    with s3_proxy(server) as proxy, s3_bucket_alone(server, proxy.endpoint) as s3:
        proxy.faults.append(Fault(operation, "pass", hook=hold))
        command = ["tarkit", "cat", "--raw", "a", "-o", s3.url("k")]
        found = problems_of(command, number, hold, folder, s3.environment)
        # What was held goes its way now, as it may in a network.
        wait_for(lambda: proxy.busy == 0)
        there = [s3.content(name) for name in s3.names()]
        found += [] if there in ([], [data]) else [f"{[len(each) for each in there]} bytes are there"]
        # What was already on its way when the program was ended can begin an upload, of which
        # nobody knows.
        found += [] if not s3.uploads() or phase == "part" else ["an upload is left"]
    return found


@contextlib.contextmanager
def s3_bucket_alone(server: str, through: str) -> Iterator[Any]:
    """A folder for other processes.

    fsspec's settings of this one are shared by the threads of a test.
    """
    with _ONE_AT_A_TIME, s3_bucket(server, through) as s3:
        pass
    yield s3


_ONE_AT_A_TIME = threading.Lock()


def test_s3(s3_endpoint: str, tmp_path: Path) -> None:
    all_well(
        [
            (phase, lambda number, phase=phase: s3_case(s3_endpoint, phase, tmp_path / phase, number))  # type: ignore[misc]
            for phase in S3_PHASES
        ]
    )


def test_many_shards_on_s3(s3_endpoint: str, tmp_path: Path) -> None:
    # Two are published at a time, others wait for their turn, and done records are read meanwhile.
    def case(program: str, number: signal.Signals) -> list[str]:
        folder = tmp_path / program
        folder.mkdir()
        (folder / "a").write_bytes(SMALL)
        subprocess.run(["tar", "cf", "0.tar", "a"], cwd=folder, check=True)
        names = [f"{number}.tar" for number in range(12)]
        for name in names[1:]:
            (folder / name).write_bytes((folder / "0.tar").read_bytes())
        hold = Hold()
        with s3_proxy(s3_endpoint) as proxy, s3_bucket_alone(s3_endpoint, proxy.endpoint) as s3:
            proxy.faults.append(Fault("put", "pass", times=-1, hook=hold))
            command = {
                "tarproc": ["tarproc", "-p", "4", "-q", "-c", "true", *names, "-O", s3.url("out")],
                "tarkit": ["tarkit", "put", "-p", "4", *names, s3.url("out/")],
            }[program]
            found = problems_of(command, number, hold, folder, s3.environment)
            wait_for(lambda: proxy.busy == 0)
            found += [f"{name} has another size" for name in s3.names() if not s3.content(name)]
            # A record says that its shard is there.
            left = set(s3.names())
            records = (name for name in left if name.endswith(".done.json"))
            found += [f"{name} without its shard" for name in records if name[:-10] not in left]
        return found

    all_well([(name, lambda number, name=name: case(name, number)) for name in ("tarproc", "tarkit")])  # type: ignore[misc]


# webhdfs

WEBHDFS_PHASES = ("GETFILESTATUS", "CREATE", "data-CREATE", "RENAME")


def webhdfs_case(phase: str, folder: Path, number: signal.Signals) -> list[str]:
    folder.mkdir()
    (folder / "a").write_bytes(DATA)
    hold = Hold()

    def held(handler: Handler) -> None:
        hold()
        handler.reply(503)

    with webhdfs_server.serve() as fake:
        fake.put("/k", b"of before")
        fake.nasty[phase] = [held]
        command = ["tarkit", "cat", "--raw", "a", "-o", f"webhdfs://{fake.authority}/k"]
        found = problems_of(command, number, hold, folder)
        found += [] if fake.files.get("/k") in (b"of before", DATA) else ["the file is not whole"]
        found += [f"{name} is left" for name in fake.files if name != "/k"]
    return found


def test_webhdfs(tmp_path: Path) -> None:
    all_well(
        [
            (phase, lambda number, phase=phase: webhdfs_case(phase, tmp_path / phase, number))  # type: ignore[misc]
            for phase in WEBHDFS_PHASES
        ]
    )


# Through a local file, to a filesystem that only fsspec knows

SLOW = """
    import os, time
    from fsspec import register_implementation
    from fsspec.implementations.local import LocalFileSystem

    def hold(name):
        if os.environ["HOLD"] == name:
            open(os.environ["REACHED"], "w").close()
            time.sleep(600)

    class Slow(LocalFileSystem):
        protocol = "slow"

        @classmethod
        def _strip_protocol(cls, path):
            return path.removeprefix("slow://")

        def put_file(self, local, remote, **options):
            hold("put_file")
            super().put_file(local, remote, **options)

        def mv(self, source, target, **options):
            hold("mv")
            super().mv(source, target, **options)

    register_implementation("slow", Slow)
    """


def spool_case(phase: str, folder: Path, number: signal.Signals) -> list[str]:
    (folder / "target").mkdir(parents=True)
    (folder / "tmp").mkdir()
    (folder / "a").write_bytes(SMALL)
    (folder / "sitecustomize.py").write_text(textwrap.dedent(SLOW))
    reached = folder / "reached"
    hold = Hold()
    watcher = threading.Thread(target=lambda: (wait_for(reached.exists), hold.reached.set()))
    watcher.start()
    environment = {"PYTHONPATH": str(folder), "HOLD": phase, "REACHED": str(reached), "TMPDIR": str(folder / "tmp")}
    command = ["tarkit", "cat", "--raw", "a", "-o", f"slow://{folder}/target/k"]
    found = problems_of(command, number, hold, folder, environment)
    watcher.join()
    found += [f"{path.name} is left" for place in ("target", "tmp") for path in (folder / place).iterdir()]
    return found


def test_spooled(tmp_path: Path) -> None:
    all_well(
        [
            (phase, lambda number, phase=phase: spool_case(phase, tmp_path / phase, number))  # type: ignore[misc]
            for phase in ("put_file", "mv")
        ]
    )


# gs


def gcs_case(server: str, phase: str, folder: Path, number: signal.Signals) -> list[str]:
    folder.mkdir()
    data = SMALL if phase == "put" else DATA
    (folder / "a").write_bytes(data)
    hold = Hold()
    with s3_proxy(server) as proxy:
        bucket = f"signals-{os.urandom(6).hex()}"
        ask(server, "POST", "/storage/v1/b?project=tests", json.dumps({"name": bucket}))
        # To this proxy, what is not of S3 are plain requests by their method.
        operation, count = {"put": ("other", 1), "finish": ("put", 2)}[phase]
        proxy.faults += [Fault(operation, "pass") for _ in range(count - 1)]
        proxy.faults.append(Fault(operation, "pass", hook=hold))
        (folder / "fsspec").mkdir()
        (folder / "fsspec" / "conf.json").write_text(
            json.dumps({"gs": {"endpoint_url": proxy.endpoint, "token": "anon"}})
        )
        environment = {"FSSPEC_CONFIG_DIR": str(folder / "fsspec")}
        command = ["tarkit", "cat", "--raw", "a", "-o", f"gs://{bucket}/k"]
        found = problems_of(command, number, hold, folder, environment)
        wait_for(lambda: proxy.busy == 0)
        names = [
            entry["name"] for entry in json.loads(ask(server, "GET", f"/storage/v1/b/{bucket}/o")).get("items", [])
        ]
        there = [ask(server, "GET", f"/storage/v1/b/{bucket}/o/{name}?alt=media") for name in names]
        found += [] if there in ([], [data]) else [f"{[len(each) for each in there]} bytes are there"]
    return found


def ask(server: str, method: str, path: str, body: str | None = None) -> bytes:
    connection = http.client.HTTPConnection(server.partition("//")[2], timeout=120)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        return connection.getresponse().read()
    finally:
        connection.close()


def test_gs(gcs_endpoint: str, tmp_path: Path) -> None:
    all_well(
        [
            (phase, lambda number, phase=phase: gcs_case(gcs_endpoint, phase, tmp_path / phase, number))  # type: ignore[misc]
            for phase in ("put", "finish")
        ]
    )
