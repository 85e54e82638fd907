"""Downloads of the files of a table, from servers that do what those of the field do."""

from __future__ import annotations

import gzip
import ipaddress
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from httpserver import Fault, FaultServer

from tarkit.errors import UsageError
from tarkit.extras import MissingExtraError
from tarkit.steps.download import REASONS, DownloadOptions, FailedRow, fetched, outcomes
from tarkit.steps.tablerows import Wanted
from tarkit.store.http import guarded
from tarkit.store.retry import Retry

JPEG = b"\xff\xd8\xff" + bytes(5000)
HERE = ipaddress.ip_address("127.0.0.1")
QUICK = Retry(base=0.001, cap=0.002, deadline=20)


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as running:
        yield running


def options(**more: Any) -> DownloadOptions:
    return DownloadOptions(**{"allow_private": True, "retry": QUICK, "timeout": 5.0, **more})


def fetch(*urls: str, field: str = "jpg", **more: Any) -> tuple[dict[str, bytes], list[FailedRow]]:
    """Return the contents by key, and what failed; the key is the number of the URL."""
    rows = [Wanted({"__key__": str(number)}, [(field, url)]) for number, url in enumerate(urls)]
    failed: list[FailedRow] = []
    found = {sample["__key__"]: sample[field] for sample in fetched(rows, options(**more), failed.append)}
    assert list(found) == sorted(found, key=int)
    assert len(found) + len(failed) == len(urls)
    for row in failed:
        assert row.reason in REASONS or row.reason.startswith("http-")
    return found, failed


def reason_of(url: str, **more: Any) -> tuple[str, int]:
    _, (failed,) = fetch(url, **more)
    return failed.reason, failed.attempts


def redirect(target: str) -> Fault:
    return Fault("status", status=302, headers=(("Location", target),))


@contextmanager
def raw(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """Serve every connection by a function, one after the other."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.recv(65536)
                answer(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/x.jpg"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def test_rows_come_in_their_order_with_their_own_fields(server: FaultServer) -> None:
    urls = [server.put(f"{number}.jpg", JPEG + bytes([number])) for number in range(100)]
    text = server.put("t", b"a caption")
    rows = [
        Wanted({"__key__": str(number), "cls": b"3"}, [("jpg", url), ("txt", text)]) for number, url in enumerate(urls)
    ]
    samples = list(fetched(rows, options(), pytest.fail))
    assert [sample["__key__"] for sample in samples] == [str(number) for number in range(100)]
    for number, sample in enumerate(samples):
        assert sample == {"__key__": str(number), "cls": b"3", "jpg": JPEG + bytes([number]), "txt": b"a caption"}


def test_one_file_of_a_row_fails(server: FaultServer) -> None:
    row = Wanted({"__key__": "a"}, [("jpg", server.put("a", JPEG)), ("png", server.put("b", JPEG))])
    ((same, failed),) = outcomes([row], options())
    assert same is row
    assert [(each.key, each.field, each.reason) for each in failed] == [("a", "png", "wrong-content")]  # type: ignore[union-attr]


def test_rows_without_files_and_no_rows() -> None:
    assert list(fetched([], options(), pytest.fail)) == []
    assert list(fetched([Wanted({"__key__": "a", "txt": b"x"}, [])], options(), pytest.fail)) == [
        {"__key__": "a", "txt": b"x"}
    ]


def test_a_redirect_to_html_of_status_200(server: FaultServer) -> None:
    page = server.put("login", b"<!doctype html><html>log in</html>")
    assert reason_of(server.put("a", b"", redirect(page))) == ("wrong-content", 1)


def test_0_bytes_of_status_200(server: FaultServer) -> None:
    assert reason_of(server.put("a", b"")) == ("empty", 6)
    assert fetch(server.put("b", JPEG, Fault("error-body")))[1][0].reason == "wrong-content"


def test_a_cut_body_is_resumed_at_its_byte(server: FaultServer) -> None:
    content = JPEG * 100
    found, failed = fetch(server.put("a", content, Fault("cut", at=300_000), Fault("reset", at=350_000)))
    assert (found, failed) == ({"0": content}, [])
    ranges = [asked.get("Range", "") for asked in server.asked("a")]
    assert ranges[0] == ""
    assert all(text.startswith("bytes=") for text in ranges[1:])


@pytest.mark.parametrize("kind", ["replace", "no-range", "wrong-range", "no-validator"])
def test_a_body_that_cannot_be_resumed_is_read_anew(server: FaultServer, kind: str) -> None:
    content = JPEG * 100
    found, failed = fetch(server.put("a", content, Fault("cut", at=300_000), Fault(kind, at=7)), field="bin")
    assert not failed
    assert found["0"] == server.objects["a"].content


def test_an_object_that_became_shorter(server: FaultServer) -> None:
    url = server.put("a", JPEG, Fault("cut", at=4000), Fault("status", status=416))
    assert fetch(url)[0] == {"0": JPEG}


@pytest.mark.parametrize("of", ["5003", "*"])
def test_a_part_that_was_not_asked_for_is_not_taken_for_the_whole(of: str) -> None:
    head = f"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-99/{of}\r\nContent-Length: 100\r\n\r\n"
    with raw(lambda connection: connection.sendall(head.encode() + JPEG[:100])) as url:
        assert reason_of(url, tries=2, ignore_robots=True) == ("short", 2)


def test_a_rest_that_comes_in_parts() -> None:
    content = JPEG[:1000]

    def answer(connection: socket.socket) -> None:
        start = starts.pop(0)
        end = {0: 100, 100: 600}.get(start, 1000)
        status = "206 Partial Content" if start else "200 OK"
        part = f"Content-Range: bytes {start}-{end - 1}/1000\r\n" if start else ""
        length = end - start if start else 1000
        head = f'HTTP/1.1 {status}\r\n{part}ETag: "x"\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n'
        connection.sendall(head.encode() + content[start:end])

    starts = [0, 100, 600]
    with raw(answer) as url:
        assert fetch(url, ignore_robots=True) == ({"0": content}, [])
    assert not starts


@pytest.mark.parametrize(
    "answer",
    [b"\xff\xd8\xff\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: \0\r\n\r\n"],
)
def test_an_answer_that_is_not_http(answer: bytes) -> None:
    with raw(lambda connection: connection.sendall(answer)) as url:
        _, (failed,) = fetch(url, tries=2, ignore_robots=True)
    assert (failed.reason, failed.attempts) == ("protocol", 2)
    assert failed.detail.startswith("its answer is not HTTP: ")
    assert "\n" not in failed.detail


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_always_cut(server: FaultServer, chunked: bool) -> None:
    server.put("a", JPEG, chunked=chunked, always=Fault("cut", at=10), etag="")
    assert reason_of(f"http://{server.host}/a", tries=7) == ("short", 7)


def test_one_byte_after_the_other_ends_with_the_total_time() -> None:
    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n\xff\xd8\xff")
        for _ in range(100):
            time.sleep(0.02)
            connection.sendall(b"x")

    with raw(drip) as url:
        begun = time.monotonic()
        assert reason_of(url, timeout=0.2, tries=2, ignore_robots=True) == ("timeout", 2)
        assert time.monotonic() - begun < 1.5


def test_a_silent_server_ends_with_the_total_time(server: FaultServer) -> None:
    server.put("a", JPEG, always=Fault("stall", at=10))
    assert reason_of(f"http://{server.host}/a", timeout=0.2, tries=2, ignore_robots=True) == ("timeout", 2)


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_respected_by_all_rows_of_the_host(server: FaultServer, status: int) -> None:
    busy = Fault("status", status=status, headers=(("Retry-After", "1"),))
    urls = [server.put("a", JPEG, busy), *(server.put(f"{number}", JPEG) for number in range(4))]
    begun = time.monotonic()
    found, _ = fetch(*urls, per_host=1, ignore_robots=True)
    assert time.monotonic() - begun >= 1
    assert len(found) == 5
    assert [path for path, _ in server.requests] != ["a", "a"]


def test_a_host_that_asks_for_more_time_than_there_is(server: FaultServer) -> None:
    busy = Fault("status", status=429, headers=(("Retry-After", "3600"),))
    urls = [server.put("a", JPEG, busy), server.put("b", JPEG)]
    found, failed = fetch(*urls, per_host=1, ignore_robots=True)
    assert (found, [row.reason for row in failed]) == ({}, ["http-429", "http-429"])
    assert "asked to wait" in failed[1].detail
    assert not server.asked("b")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 451, 501])
def test_a_final_answer_is_not_asked_for_again(server: FaultServer, status: int) -> None:
    server.put("a", JPEG, always=Fault("status", status=status))
    assert reason_of(f"http://{server.host}/a") == (f"http-{status}", 1)


@pytest.mark.parametrize("fault", [Fault("status", status=503), Fault("drop"), Fault("reset"), Fault("cut")])
def test_five_faults_are_survived_and_more_are_not(server: FaultServer, fault: Fault) -> None:
    # aiohttp itself asks once more where a connection was dropped.
    urls = [server.put("a", JPEG, *[fault] * 5), server.put("b", JPEG, always=fault)]
    found, (failed,) = fetch(*urls)
    assert found == {"0": JPEG}
    assert failed.attempts == 6


def test_the_time_of_all_waits_is_limited(server: FaultServer) -> None:
    server.put("a", JPEG, always=Fault("status", status=503))
    patient = Retry(base=1000, cap=1000, deadline=0.001)
    assert reason_of(f"http://{server.host}/a", retry=patient, ignore_robots=True) == ("http-503", 1)


def test_large_values_of_rows_are_not_read_ahead(server: FaultServer) -> None:
    url = server.put("a", JPEG)
    taken = []

    def rows() -> Iterator[Wanted]:
        for number in range(2000):
            taken.append(number)
            yield Wanted({"__key__": str(number), "bin": bytes(10_000)}, [("jpg", url)])

    samples = fetched(rows(), options(mem=1_000_000), pytest.fail)
    next(samples)
    assert len(taken) < 300
    samples.close()  # type: ignore[attr-defined]


def test_redirects_are_followed_and_bounded(server: FaultServer) -> None:
    target = server.put("end", JPEG)
    for number in range(1, 8):
        server.put(f"{number}", b"", always=redirect(target if number == 1 else f"/{number - 1}"))
    url = f"http://{server.host}/{{}}"
    assert fetch(url.format(5))[0] == {"0": JPEG}
    assert reason_of(url.format(6)) == ("redirect", 1)


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://h/x", "http://h:x/", "data:image/jpeg,x"])
def test_a_redirect_to_another_scheme(server: FaultServer, target: str) -> None:
    assert reason_of(server.put("a", b"", redirect(target))) == ("redirect", 1)


def test_loopback_is_refused_unless_it_is_allowed(server: FaultServer) -> None:
    port = server.host.partition(":")[2]
    url = server.put("a", JPEG)
    for host in ("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"):
        assert reason_of(f"http://{host}:{port}/a", allow_private=False)[0] == "address", host
    for host in ("2130706433", "127.1", "0177.0.0.1", "0x7f.1"):
        assert reason_of(f"http://{host}:{port}/a", allow_private=False)[0] in ("address", "url", "dns"), host
    for host in ("169.254.169.254", "[fd00:ec2::254]", "[::ffff:169.254.169.254]", "2852039166"):
        assert reason_of(f"http://{host}:{port}/a", allow_private=True)[0] in ("address", "url"), host
    assert not server.requests
    assert fetch(url)[0] == {"0": JPEG}


def test_a_redirect_to_loopback_is_refused(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = server.put("secret", JPEG).replace("127.0.0.1", "127.0.0.2")
    url = server.put("a", b"", redirect(secret))
    monkeypatch.setattr(guarded, "is_allowed", lambda address, private: ipaddress.ip_address(address) == HERE)
    assert reason_of(url, allow_private=False) == ("address", 1)
    assert not server.asked("secret")


def test_the_address_that_was_checked_is_connected_to(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    url = server.put("a", JPEG).replace("127.0.0.1", "rebinding.example")
    looked_up = []

    def answer(host: str, port: int, *rest: object, **more: object) -> list[Any]:
        looked_up.append(host)
        # The second answer, and every later one, is another address.
        address = "127.0.0.1" if len(looked_up) == 1 else "127.0.0.3"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    real = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *rest, **more: (answer if host[0] == "r" else real)(host, *rest, **more)
    )
    monkeypatch.setattr(guarded, "is_allowed", lambda address, private: ipaddress.ip_address(address) == HERE)
    found, failed = fetch(url, url, allow_private=False)
    assert (list(found), failed) == (["0", "1"], [])
    assert looked_up == ["rebinding.example"]


@pytest.mark.parametrize(
    ("errno", "attempts"), [(socket.EAI_NONAME, 1), (socket.EAI_AGAIN, 6)], ids=["unknown host", "resolver is busy"]
)
def test_names_that_are_not_resolved(monkeypatch: pytest.MonkeyPatch, errno: int, attempts: int) -> None:
    def fail(*_: object, **more: object) -> None:
        raise socket.gaierror(errno, "no")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    assert reason_of("http://nowhere.example/a", ignore_robots=True) == ("dns", attempts)


def test_a_host_that_does_not_answer_is_left_alone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    _, failed = fetch(*[f"http://127.0.0.1:{port}/{number}" for number in range(40)], per_host=1, ignore_robots=True)
    assert {row.reason for row in failed} == {"connect"}
    # Without that, each row fails after six attempts.
    assert sum(row.attempts for row in failed) < 40 * 6
    assert any("not tried" in row.detail for row in failed)


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_that_is_too_large(server: FaultServer, announced: bool) -> None:
    url = server.put("a", JPEG * 1000, chunked=not announced)
    assert reason_of(url, max_bytes=10_000) == ("too-large", 1)
    assert server.sent < 4_000_000


def test_a_bomb_is_not_unpacked(server: FaultServer) -> None:
    bomb = gzip.compress(bytes(50_000_000))
    url = server.put("a", bomb, headers=(("Content-Encoding", "gzip"),))
    assert reason_of(url, max_bytes=1_000_000) == ("too-large", 1)


def test_content_encodings(server: FaultServer) -> None:
    encoded = (("Content-Encoding", "gzip"),)
    urls = [
        server.put("a.jpg", gzip.compress(JPEG), headers=encoded),
        server.put("b.jpg", JPEG, headers=(("Content-Encoding", "br"),)),
        server.put("c.jpg", gzip.compress(JPEG)[:-9], headers=encoded),
    ]
    found, failed = fetch(*urls)
    assert found == {"0": JPEG}
    assert [row.reason for row in failed] == ["encoding", "encoding"]
    stored = gzip.compress(b"text")
    assert fetch(server.put("d.txt.gz", stored, headers=encoded), field="txt.gz")[0] == {"0": stored}


def test_one_url_twice_is_two_samples(server: FaultServer) -> None:
    url = server.put("a", JPEG)
    assert fetch(url, url)[0] == {"0": JPEG, "1": JPEG}


def test_blanks_percent_signs_and_fragments(server: FaultServer) -> None:
    server.put("a%20b.jpg", JPEG)
    server.put("100%25.jpg", JPEG)
    base = f"http://{server.host}"
    assert len(fetch(f"{base}/a b.jpg ", f"{base}/a%20b.jpg#x", f"{base}/100%.jpg")[0]) == 3
    assert [fetch(url)[1][0].reason for url in ("a.jpg", "file:///etc/passwd", "http://h:x/")] == ["url"] * 3


def test_robots_txt_is_respected_and_read_once(server: FaultServer) -> None:
    server.put("robots.txt", b"User-agent: *\nDisallow: /private\n")
    urls = [server.put("a", JPEG), server.put("private/b", JPEG)]
    found, (failed,) = fetch(*urls * 10)[0], fetch(urls[1])[1]
    assert list(found.values()) == [JPEG] * 10
    assert failed.reason == "robots"
    assert len(server.asked("robots.txt")) == 2
    assert not server.asked("private/b")
    assert fetch(urls[1], ignore_robots=True)[0] == {"0": JPEG}


def test_a_redirect_does_not_evade_robots_txt(server: FaultServer) -> None:
    server.put("robots.txt", b"User-agent: tarkit\nDisallow: /private\n")
    assert reason_of(server.put("a", b"", redirect("/private/b"))) == ("robots", 1)


def test_a_robots_txt_that_cannot_be_read(server: FaultServer) -> None:
    server.put("robots.txt", b"", always=Fault("status", status=500))
    assert reason_of(server.put("a", JPEG))[0] == "robots"
    server.put("robots.txt", b"User-agent: *\nDisallow: /\n", Fault("drop"), Fault("status", status=503))
    assert reason_of(f"http://{server.host}/a")[0] == "robots"
    server.put("robots.txt", b"", always=Fault("status", status=403))
    assert fetch(f"http://{server.host}/a")[0] == {"0": JPEG}


@pytest.mark.parametrize("value", ["noai", "noimageai", "noindex", "otherbot: noimageindex, nofollow"])
def test_opt_out_headers_are_respected_unless_ignored(server: FaultServer, value: str) -> None:
    url = server.put("a", JPEG, headers=(("X-Robots-Tag", "nofollow"), ("X-Robots-Tag", value)))
    assert reason_of(url) == ("opt-out", 1)
    assert fetch(url, ignore_opt_out=True)[0] == {"0": JPEG}


@pytest.mark.parametrize("user", ["", "user{}@"])
def test_a_host_gets_no_more_requests_than_its_limit(user: str) -> None:
    now = most = 0
    lock = threading.Lock()

    def count(change: int) -> None:
        nonlocal now, most
        with lock:
            now += change
            most = max(most, now)

    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    threads = []

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while connection.recv(65536):
                count(1)
                time.sleep(0.01)
                count(-1)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(JPEG), JPEG))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=answer, args=(connection,)))
            threads[-1].start()

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        urls = [f"http://{user.format(number)}{place}/{number}" for number in range(40)]
        found, _ = fetch(*urls, per_host=3, ignore_robots=True)
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in (serving, *threads):
            thread.join()
    assert len(found) == 40
    assert most == 3
    # They were used again.
    assert len(threads) <= 4


def test_more_rows_than_memory(server: FaultServer) -> None:
    content = b"\xff\xd8\xff" + bytes(2_000_000)
    urls = [server.put(f"{number}", content, chunked=number % 2 == 0) for number in range(20)]
    rows = (Wanted({"__key__": str(number)}, [("jpg", url), ("b", url)]) for number, url in enumerate(urls))
    count = 0
    for sample in fetched(rows, options(mem=4_000_000, per_host=10, ignore_robots=True), pytest.fail):
        assert sample["jpg"] == sample["b"] == content
        if count == 0:
            time.sleep(0.3)
            # The other rows wait until this one was taken.
            assert server.sent < 36_000_000
        count += 1
    assert count == 20


def test_a_failed_row_before_the_oldest_that_waits_for_memory(server: FaultServer) -> None:
    large = JPEG + bytes(3_000_000)
    urls = [f"http://{server.host}/missing", server.put("large", large, Fault("status", status=503))]
    urls += [server.put(f"{number}", JPEG + bytes(1_500_000)) for number in range(10)]
    found, (failed,) = fetch(*urls, mem=1_000_000, per_host=2, ignore_robots=True)
    assert failed.key == "0"
    assert (len(found), found["1"]) == (11, large)


def test_a_reader_that_stops_early_leaves_no_thread(server: FaultServer) -> None:
    urls = [server.put(f"{number}", JPEG, always=Fault("stall", at=9) if number else None) for number in range(200)]
    rows = [Wanted({"__key__": str(number)}, [("jpg", url)]) for number, url in enumerate(urls)]
    samples = outcomes(rows, options(ignore_robots=True))
    next(samples)
    samples.close()
    assert not [thread.name for thread in threading.enumerate() if thread.name == "tarkit-download"]


FORGETFUL = """
import sys
from tarkit.steps.download import DownloadOptions, fetched
from tarkit.steps.tablerows import Wanted

rows = (Wanted({"__key__": str(number)}, [("jpg", sys.argv[1])]) for number in range(1000))
sys.modules["kept"] = samples = fetched(rows, DownloadOptions(allow_private=True), print)
next(samples)
"""


def test_a_program_ends_that_forgot_its_samples(server: FaultServer) -> None:
    words = [sys.executable, "-c", FORGETFUL, server.put("a", JPEG)]
    assert subprocess.run(words, timeout=60, capture_output=True, check=True).stderr == b""


def test_an_error_of_the_table_comes_out(server: FaultServer) -> None:
    def rows() -> Iterator[Wanted]:
        yield Wanted({"__key__": "0"}, [("jpg", server.put("a", JPEG))])
        raise UsageError("row 2 is damaged")

    with pytest.raises(UsageError, match="row 2"):
        list(fetched(rows(), options(), pytest.fail))


def test_secrets_of_urls_are_not_reported(server: FaultServer) -> None:
    _, (failed,) = fetch(f"http://user:geheim@{server.host}/a?X-Amz-Signature=geheim")
    assert failed.reason == "http-404"
    assert "geheim" not in str(failed)


def test_a_proxy_of_the_environment_is_used(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://{server.host}")
    monkeypatch.setenv("no_proxy", "direct.example")
    server.put("http://other.example/a", JPEG)
    found, _ = fetch("http://other.example/a", allow_private=False, ignore_robots=True)
    assert found == {"0": JPEG}
    # What only the proxy could reach is still refused by its address.
    assert reason_of("http://127.0.0.2/a", allow_private=False, ignore_robots=True)[0] == "address"


@pytest.mark.parametrize("name", ["tries", "per_host", "connections", "timeout", "max_bytes", "mem"])
def test_options_that_are_not_valid(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        options(**{name: 0})


def test_without_aiohttp(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, needed_for: str, extra: str) -> None:
        raise MissingExtraError(needed_for, extra)

    monkeypatch.setattr(guarded, "library", missing)
    with pytest.raises(MissingExtraError, match="aiohttp"):
        fetch("http://h/x")
