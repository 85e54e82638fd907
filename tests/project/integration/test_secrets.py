"""A secret in a URL, a command, the environment or a credentials file is shown to nobody.

Canaries are looked for in what the programs print, in every file that they leave, and in the
argument lists of all processes that they start. Two things are the user's own doing and no leak: a
``pipe:`` command is in the arguments of the shell that runs it, as in any shell; and a command
finds the environment that tarkit was started with.
"""

from __future__ import annotations

import base64
import os
import sys
import tarfile
import threading
import urllib.parse
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
import warmprogram
from httpserver import Fault, FaultServer
from tarbuild import archive_of

PASSWORD = "c4n4ry p4ssw0rd"
TOKEN = "c4n4ry/t0k3n+x=="
COMMAND = "c4n4ry-c0mm4nd"
ENVIRONMENT = "c4n4ry-env1r0nment"
CONFIGURED = "c4n4ry-c0nfigured"
SAMPLES = archive_of([(f"k{n}.{field}", b"%d" % n) for n in range(3) for field in ("cls", "dat")], tarfile.GNU_FORMAT)
BUSY = Fault("status", status=503, headers=(("Retry-After", "3600"),))
BIN = os.path.dirname(os.path.abspath(sys.executable))


def forms(secret: str) -> list[bytes]:
    """A secret as it is, quoted, and in base64 as a part of user:password."""
    found = [
        secret,
        secret.rsplit(maxsplit=1)[-1],
        urllib.parse.quote(secret, safe=""),
        urllib.parse.quote(secret),
        secret.replace("/", "\\/"),
    ]
    encoded = [form.encode() for form in found]
    return [*encoded, base64.b64encode(encoded[0]), base64.b64encode(b"me:" + encoded[0])[:12], repr(secret).encode()]


SECRETS = [form for secret in (PASSWORD, TOKEN, COMMAND, ENVIRONMENT, CONFIGURED) for form in forms(secret)]


class Seen(NamedTuple):
    code: int
    stdout: bytes
    stderr: bytes
    argv: set[bytes]


def descendants(root: int) -> set[int]:
    """Process ids of all that a process started, and of what these started."""
    found = set()
    with suppress(OSError):
        for children in Path(f"/proc/{root}/task").glob("*/children"):
            for child in map(int, children.read_text().split()):
                found |= {child} | descendants(child)
    return found


def watched(folder: Path, *arguments: str, **more: str) -> Seen:
    """Run a program, and look at its descendants' arguments all the while."""
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("THIS SYSTEM HAS NO /proc: arguments of processes cannot be looked at")
    environment = {
        **os.environ,
        "AWS_SECRET_ACCESS_KEY": ENVIRONMENT,
        "AWS_SESSION_TOKEN": ENVIRONMENT,
        "TMPDIR": str(folder.parent),
        "SEEN": str(folder.parent / "seen"),
        "PATH": os.pathsep.join((BIN, os.environ.get("PATH", os.defpath))),
        **more,
    }
    parent = warmprogram.parent()
    argv: set[bytes] = set()
    ended = threading.Event()
    # The program, and a child that was only forked, show these arguments: not what the user typed.
    while not (own := Path(f"/proc/{parent}/cmdline").read_bytes()):
        """The kernel shows none while it becomes the program."""

    def watch() -> None:
        while not ended.wait(0.05):
            for pid in descendants(parent):
                try:
                    line = Path(f"/proc/{pid}/cmdline").read_bytes()
                except OSError:
                    continue
                # As above; and of a child that has ended.
                if line not in (own, b""):
                    argv.add(line)
            if argv:
                (folder.parent / "seen").touch()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        done = warmprogram.run(arguments, folder, environment, None)
    finally:
        ended.set()
        thread.join()
    return Seen(done.returncode, done.stdout, done.stderr, argv)


def check(folder: Path, seen: Seen, allowed: bytes | None = None) -> None:
    """No secret anywhere.

    ``allowed``: the command of a pipe:, which its own shell has in its arguments.
    """
    assert b"this is a bug in tarkit" not in seen.stderr
    argv = [line for line in seen.argv if allowed is None or allowed not in line]
    for secret in SECRETS:
        assert secret not in seen.stdout + seen.stderr, seen.stderr
        assert not any(secret in line for line in argv), argv
        for path in folder.rglob("*"):
            assert secret not in os.fsencode(path.name)
            if path.is_file():
                assert secret not in path.read_bytes(), path


@pytest.fixture
def url(server: FaultServer, request: pytest.FixtureRequest) -> str:
    """A URL with a password and a token, that is answered as the parameter says."""
    always = {"503": BUSY, "garbage": Fault("error-body")}.get(request.param)
    server.put("in.tar", SAMPLES, always=always)
    name = "missing.tar" if request.param == "404" else "in.tar"
    query = f"X-Amz-Signature={urllib.parse.quote(TOKEN, safe='')}&sig={urllib.parse.quote(PASSWORD)}&{COMMAND}"
    return f"http://me:{PASSWORD}@{server.host}/{name}?{query}#{PASSWORD}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where programs run; what they may know is beside it."""
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


# It goes on once a process was seen.
WAIT = "sleep 0.05; until [ -e $SEEN ]; do sleep 0.02; done"
SHELL = f"cat __source__; cp __source__ sample.src; {WAIT}; [ $(cat sample.cls) != 1 ]"
RUNS = {
    "tarproc -o": ["tarproc", "-v", "-c", SHELL, "URL", "-o", "out.tar", "--report", "report.json"],
    "tarproc -O": ["tarproc", "-v", "-c", SHELL, "URL", "-O", "outdir", "--report", "report.json"],
    "tarproc --map": ["tarproc", "-v", "--map", "../m.py:f", "URL", "-o", "out.tar", "--add-log", "log"],
    "tarproc @list": ["tarproc", "-v", "-c", SHELL, "@../list", "-O", "outdir"],
    "cat": ["tarkit", "cat", "-v", "URL", "URL", "-o", "out.tar"],
    "cat --raw": ["tarkit", "cat", "-v", "--raw", "URL", "-o", "out.tar"],
    "show": ["tarkit", "show", "-v", "--json", "URL"],
    "show --count": ["tarkit", "show", "-v", "--count", "URL", "URL"],
    "split": ["tarkit", "split", "-v", "URL", "-o", "part-%d.tar"],
    "create": ["tarkit", "create", "-v", "--plan", "../plan", "-o", "out.tar"],
    "put": ["tarkit", "put", "-v", "../list", "URL"],
    "get": ["tarkit", "get", "-v", "URL", "."],
    "ls": ["tarkit", "ls", "-v", "-l", "URL"],
    "rm": ["tarkit", "rm", "-v", "URL"],
    "index": ["tarkit", "index", "-v", "--check", "URL"],
}
WITH_ALL = ("tarproc -O", "cat", "show", "index")
# Exit codes where they are not the same for all verbs that read.
READS = {"200": 0, "404": 66, "503": 75, "garbage": 65}


# Each verb with an error, and one of each kind with all answers.
@pytest.mark.parametrize(
    ("name", "url"),
    [*((name, "404") for name in RUNS), *((name, each) for name in WITH_ALL for each in ("200", "503", "garbage"))],
    indirect=["url"],
)
def test_url(name: str, url: str, folder: Path, request: pytest.FixtureRequest) -> None:
    (folder.parent / "list").write_text(f"{url}\n")
    (folder.parent / "plan").write_text(f"a.bin {url}\na.txt text:x\n")
    (folder.parent / "m.py").write_text("def f(s):\n    print(s)\n    return {'u.txt': s['__url__'].encode()}\n")
    seen = watched(folder, *[url if each == "URL" else each for each in RUNS[name]])
    check(folder, seen)
    answer = request.node.callspec.params["url"]
    expected: dict[str, object] = {**READS}
    if name in ("tarproc -o", "tarproc -O", "tarproc @list"):
        expected["200"] = 3
        assert answer != "200" or seen.argv, "no process was seen"
        assert answer != "200" or list(folder.rglob("*.failed.tar")), "no failed samples"
        assert answer != "200" or b"c4n4ry" not in b"".join(p.read_bytes() for p in folder.rglob("*") if p.is_file())
    if name == "cat":
        expected["200"] = 65  # the keys come twice
    if name in ("cat --raw", "create", "get", "ls"):
        expected["garbage"] = 0  # an error page of status 200 is a fine file
    if name in ("put", "rm", "index"):
        expected = dict.fromkeys(READS, None)
        assert seen.code != 0
    assert expected[answer] in (None, seen.code), (seen.code, seen.stderr)


@pytest.mark.parametrize(("name", "mark"), [("tarproc -O", "/"), ("cat --raw", "#"), ("create", "?")])
def test_a_password_with_a_mark_in_it_makes_another_url_and_is_not_shown(
    name: str, mark: str, folder: Path, server: FaultServer
) -> None:
    url = f"http://me:c4n4ry{mark}p4ssw0rd@{server.host}/in.tar?sig={COMMAND}"
    (folder.parent / "plan").write_text(f"a.bin {url}\n")
    seen = watched(folder, *[url if each == "URL" else each for each in RUNS[name]])
    check(folder, seen)
    assert b"c4n4ry" not in seen.stdout + seen.stderr
    assert seen.code == 2


@pytest.mark.parametrize("tail", [f"#{PASSWORD}", f"?a=b/{COMMAND}", f"?a=b#/{COMMAND}"])
def test_the_name_of_what_is_at_a_url_has_no_secret(tail: str, folder: Path, server: FaultServer) -> None:
    server.put("in.tar", SAMPLES)
    url = f"http://me:{PASSWORD}@{server.host}/in.tar{tail}"
    for arguments in (("ls", url), ("ls", "--json", url)):
        seen = watched(folder, "tarkit", *arguments)
        check(folder, seen)
        assert (seen.code, b"in.tar" in seen.stdout) == (0, True), seen.stderr


def test_outputs_at_a_url_are_named_without_its_password(folder: Path) -> None:
    (folder.parent / "in.tar").write_bytes(SAMPLES)
    command = ("tarproc", "-v", "-c", "[ $(cat sample.cls) != 1 ]", "../in.tar", "--report", "report.json")
    for option, place in (("-o", "out.tar"), ("-O", "outdir")):
        seen = watched(folder, *command, option, f"memory://me:{PASSWORD}@b/{place}")
        check(folder, seen)
        assert (seen.code, f"memory://b/{place}".encode() in seen.stderr) == (3, True), seen.stderr


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("split", "../in.tar"), "p-%d.tar"),
        (("create", "-C", "..", "k.txt"), "p-%d.tar"),
        (("recordio-gen", "--kind", "shards", "../in.tar"), "p"),
    ],
)
def test_files_that_are_printed_as_they_are_published_have_no_password(
    arguments: tuple[str, ...], name: str, folder: Path
) -> None:
    (folder.parent / "in.tar").write_bytes(SAMPLES)
    (folder.parent / "k.txt").write_bytes(b"text")
    seen = watched(folder, "tarkit", *arguments, "-o", f"memory://me:{PASSWORD}@b/{name}")
    check(folder, seen)
    first = {"p-%d.tar": "p-0.tar", "p": "p/data-00000"}[name]
    assert (seen.code, seen.stdout) == (0, f"memory://b/{first}\n".encode()), seen.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("tarkit", "put", "-v"), ("tarproc", "-p"), ("tarkit",), ("kubetpl",), ("kubetpl", "status", "x"),
        ("kubetpl", "indexed", "-c", "true", "-O", "out", "--shards"),
        ("tarproc", "-c", "true", "x.tar", "--slice"), ("tarproc", "-c", "true", "-O", "out", "--retry-failed"),
    ],
)  # fmt: skip
def test_arguments_that_are_refused_are_shown_without_their_secrets(arguments: tuple[str, ...], folder: Path) -> None:
    seen = watched(folder, *arguments, f"s3://me:{PASSWORD}@b/in.tar?sig={COMMAND}", "-v")
    check(folder, seen)
    assert seen.code in (1, 2), seen.stderr


PIPES = {
    "works": f"cat ../in.tar; : {COMMAND} --token={TOKEN}",
    "assigns": f"TOKEN={TOKEN} cat ../in.tar # {COMMAND}",
    "fails": f"echo got {COMMAND} with {TOKEN} >&2; exit 9",
    "is not there": f"no-such-program {COMMAND}",
}


@pytest.mark.parametrize(
    ("name", "case"),
    [*(("tarproc -o", case) for case in PIPES), ("cat", "works"), ("show", "fails"), ("split", "fails")],
)
def test_pipe(name: str, case: str, folder: Path) -> None:
    (folder.parent / "in.tar").write_bytes(SAMPLES)
    spec = f"pipe:{PIPES[case]}"
    seen = watched(folder, *[spec if each == "URL" else each for each in RUNS[name]])
    check(folder, seen, allowed=PIPES[case].encode())
    if case in ("works", "assigns"):
        assert seen.code == {"tarproc -o": 3, "cat": 65}[name]
    else:
        assert seen.code == 1


def test_pipe_in_a_list_is_refused_without_being_shown(folder: Path) -> None:
    (folder.parent / "list").write_text(f"pipe:TOKEN={TOKEN} cat {COMMAND}\n")
    seen = watched(folder, "tarkit", "show", "-v", "@../list")
    check(folder, seen)
    assert seen.code == 2


def test_pipe_as_output(folder: Path) -> None:
    (folder.parent / "in.tar").write_bytes(SAMPLES)
    for command, code in ((f"cat >/dev/null; : {COMMAND}", 0), (f"TOKEN={TOKEN} false", 1), (f"exit 3 # {COMMAND}", 1)):
        options = ("-c", "true", "../in.tar", "-o", f"pipe:{command}", "--report", "report.json")
        seen = watched(folder, "tarproc", "-v", *options)
        check(folder, seen, allowed=command.encode())
        assert seen.code == code


@pytest.mark.slow
@pytest.mark.parametrize(("name", "answer"), [("tarproc -o", "403"), ("ls", "garbage")])
def test_credentials_of_a_store(name: str, answer: str, folder: Path, server: FaultServer) -> None:
    pytest.importorskip("s3fs", reason="s3fs IS NOT INSTALLED: credentials in files and environment are not tested")
    fault = Fault("error-body") if answer == "garbage" else Fault("status", status=int(answer))
    server.put("bucket/in.tar", SAMPLES, always=fault)
    server.put("bucket", SAMPLES, always=fault)
    (folder.parent / "credentials").write_text(
        f"[default]\naws_access_key_id = who\naws_secret_access_key = {CONFIGURED}\naws_session_token = {CONFIGURED}\n"
    )
    store = {
        "AWS_ENDPOINT_URL": f"http://{server.host}",
        "AWS_SHARED_CREDENTIALS_FILE": str(folder.parent / "credentials"),
        "AWS_MAX_ATTEMPTS": "1",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    arguments = ["s3://bucket/in.tar" if each == "URL" else each for each in RUNS[name]]
    check(folder, watched(folder, *arguments, **store))
    store.update(AWS_ACCESS_KEY_ID="who", AWS_SHARED_CREDENTIALS_FILE=os.devnull)
    check(folder, watched(folder, *arguments, **store))
