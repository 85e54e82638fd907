"""Tokens in URLs and commands are shown to nobody: not on stderr, not in reports, not in samples' folders."""

from __future__ import annotations

import base64
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tarproc_support import Bench, numbered, tar_bytes

TOKEN = "s3cr3tT0ken"
DATA = tar_bytes(numbered(3))


class _Handler(BaseHTTPRequestHandler):
    seen: list[str] = []

    def do_GET(self) -> None:
        self.seen.append(self.path + str(self.headers.get("Authorization")))
        found = self.path.startswith("/in.tar")
        body = DATA if found else b"no"
        if self.path.startswith("/cut.tar"):
            found, body = True, DATA[:2000]
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: its messages would stand between those of the tests."""


@pytest.fixture
def port() -> Iterator[int]:
    pytest.importorskip("aiohttp", reason="aiohttp, which reads http, is not installed")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    _Handler.seen = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


COMMAND = "cat __source__; echo; env; [ $(cat sample.cls) != 1 ]"


def _nowhere(bench: Bench, *arguments: str) -> int:
    (bench.path / "m.py").write_text("def f(s):\n    return {'u.txt': s['__url__'].encode(), 'n': b'1'}\n")
    code = 0
    for options in (["-c", COMMAND], ["-v", "-c", COMMAND], ["--map", "m.py:f"]):
        done = bench.run(*options, *arguments, "-o", "out.tar", "--report", "report.json", tidy=False)
        code = max(code, done.returncode)
        assert b"unexpected" not in done.stderr, done.stderr
        assert TOKEN.encode() not in done.stderr + done.stdout
        for path in bench.path.iterdir():
            assert TOKEN.encode() not in path.read_bytes(), path
            assert base64.b64encode(TOKEN.encode()) not in path.read_bytes(), path
            if path.name != "in.tar":
                path.unlink()
    return code


@pytest.mark.parametrize("name", ["in.tar", "missing.tar", "cut.tar"])
@pytest.mark.parametrize("place", ["query", "user"])
def test_url(tmp_path: Path, port: int, name: str, place: str) -> None:
    if place == "query":
        url = f"http://127.0.0.1:{port}/{name}?X-Amz-Signature={TOKEN}&b=1"
    else:
        url = f"http://me:{TOKEN}@127.0.0.1:{port}/{name}"
    code = _nowhere(Bench(tmp_path), url)
    assert code == {"in.tar": 3, "missing.tar": 66, "cut.tar": 65}[name]
    # The server needs it, though.
    sent = TOKEN if place == "query" else base64.b64encode(f"me:{TOKEN}".encode()).decode()
    assert any(sent in line for line in _Handler.seen)


@pytest.mark.parametrize(
    "command", ["cat in.tar # {}", "TOKEN={} cat in.tar", "cat missing {}", "sh -c 'exit 9 # {}'", "no-such-program {}"]
)
def test_pipe(tmp_path: Path, command: str) -> None:
    bench = Bench(tmp_path)
    bench.shard(numbered(3))
    code = _nowhere(bench, "pipe:" + command.format(TOKEN))
    assert code == (3 if "cat in.tar" in command else 1)


def test_output(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.shard(numbered(3))
    for command in (f"cat > /dev/null; : {TOKEN}", f"cat > /dev/null; exit 5 # {TOKEN}", f"TOKEN={TOKEN} false"):
        done = bench.run("-c", "true", "in.tar", "-o", f"pipe:{command}", "--report", "report.json")
        assert TOKEN.encode() not in done.stderr + (bench.path / "report.json").read_bytes()


def test_unreachable(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp", reason="aiohttp, which reads http, is not installed")
    bench = Bench(tmp_path)
    # Without the waits between the tries, which take half a minute.
    program = (
        "import sys\n"
        "from tarkit.cli.tarproc import main\n"
        "from tarkit.store.retry import Retry\n"
        "Retry.wait_before = lambda self, attempt: 0.0\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    with socket.socket() as deaf:
        # A port at which nobody else listens meanwhile.
        deaf.bind(("127.0.0.1", 0))
        url = f"http://me:{TOKEN}@127.0.0.1:{deaf.getsockname()[1]}/x.tar?sig={TOKEN}"
        arguments = ["-c", "true", url, "--report", "report.json"]
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments], cwd=bench.path, env=bench.env, capture_output=True
        )
    assert done.returncode == 75 and b"failed after" in done.stderr
    assert TOKEN.encode() not in done.stderr + (bench.path / "report.json").read_bytes()
