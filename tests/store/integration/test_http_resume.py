"""Reading http over a server that fails on schedule: bit-identical, or a clean error.

Never short, never a splice.
"""

from __future__ import annotations

import base64
import email.utils
import gzip
import hashlib
import lzma
import random
import shutil
import struct
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from email.message import Message

import google_crc32c
import pytest
from httpserver import KINDS, Fault, FaultServer, random_fault
from times import Times, fast

from tarkit.errors import (
    CompressionError,
    MissingInputError,
    StreamError,
    TarkitError,
    TemporaryStreamError,
    UsageError,
)
from tarkit.store.checksums import from_headers
from tarkit.store.http.connection import opener
from tarkit.store.http.place import identify
from tarkit.store.read import open_read, read_range
from tarkit.store.retry import Retry

DATA = random.Random(0).randbytes(300_000)
CANARY = "c4n4ry-t0k3n-4711"
OLD = email.utils.formatdate(1_600_000_000, usegmt=True)


def read(url: str, retry: Retry, step: int = 20_011, read_ahead: int = 1 << 20) -> bytes:
    with open_read(url, retry=retry, read_ahead=read_ahead, compression=None) as stream:
        return b"".join(iter(lambda: stream.read(step), b""))


def patient(timeout: float) -> Retry:
    """For a server that is silent once: on a busy machine it may be slow many times."""
    return fast(timeout=timeout, attempts=200, deadline=1e9)


def ranges(server: FaultServer, path: str) -> list[str]:
    return [headers.get("Range", "") for headers in server.asked(path)]


# Each fault alone


@pytest.mark.parametrize(
    ("kind", "read_ahead"),
    [("cut", 50_000), ("cut", 1 << 24), ("stall", 1 << 24)]
    + [
        (kind, 0)
        for kind in (
            *("cut", "frame", "reset", "stall", "drip", "status", "drop"),
            *("no-range", "error-body", "wrong-range", "part"),
        )
    ],
)
def test_one_fault_is_mended(server: FaultServer, kind: str, read_ahead: int) -> None:
    # The first answer is cut, the second meets the fault, the third is whole.
    path = f"one-{kind}-{read_ahead}"
    url = server.put(path, DATA, Fault("cut", 100_000), Fault(kind, 70_000), Fault("cut", 50_000))
    retry = fast()
    with open_read(url, retry=retry, read_ahead=read_ahead, compression=None) as stream:
        got = stream.read(1)
        if kind == "stall":
            # Only from here on: the first answer may be as late as any other one of a busy machine.
            object.__setattr__(retry, "timeout", 0.5)
        assert got + b"".join(iter(lambda: stream.read(20_011), b"")) == DATA
    assert ranges(server, path)[:2] == ["", "bytes=100000-"]
    assert [asked.get("If-Match") for asked in server.asked(path)[1:]] == [server.objects[path].etag] * (
        len(server.asked(path)) - 1
    )


@pytest.mark.parametrize("kind", ["status", "drop", "reset", "stall"])
def test_the_first_answer_fails(server: FaultServer, kind: str) -> None:
    url = server.put(f"first-{kind}", DATA, Fault(kind), Fault(kind))
    assert read(url, patient(0.3)) == DATA


def test_identity_is_asked_for(server: FaultServer) -> None:
    read(server.put("plain", DATA), fast())
    (asked,) = server.asked("plain")
    assert asked["Accept-Encoding"] == "identity"
    assert "Range" not in asked


@pytest.mark.parametrize("conditions", [True, False])
@pytest.mark.parametrize("range_kind", ["", "no-range"])
def test_a_replaced_object_is_no_splice(server: FaultServer, conditions: bool, range_kind: str) -> None:
    url = server.put("replaced", DATA, Fault("cut", 100_000), Fault("replace"), conditions=conditions)
    with open_read(url, retry=fast(), compression=None) as stream:
        got = b""
        with pytest.raises(StreamError, match=r"changed.* while it was read") as caught:
            while data := stream.read(30_000):
                got += data
        assert got == DATA[:100_000]
        assert caught.value.offset == 100_000
        assert not isinstance(caught.value, TemporaryStreamError)
        with pytest.raises(StreamError, match="changed"):
            stream.read(1)


def test_a_replaced_object_of_another_length(server: FaultServer) -> None:
    url = server.put("shrunk", DATA, Fault("cut", 100_000), Fault("drop"), conditions=False, etag="same")
    with open_read(url, retry=fast(), read_ahead=0, compression=None) as stream:
        got = stream.read(1)
        server.objects["shrunk"].content = DATA[:200_000]
        with pytest.raises(StreamError, match="it has 200000 bytes now, and had 300000"):
            while data := stream.read(30_000):
                got += data
    assert got == DATA[:100_000]


def test_an_object_that_is_gone(server: FaultServer) -> None:
    url = server.put("gone", DATA, Fault("cut", 100_000), Fault("status", status=404))
    with pytest.raises(StreamError, match="removed while it was read: the server answers 404 Not Found") as caught:
        read(url, fast())
    assert caught.value.exit_code == 1
    with pytest.raises(MissingInputError, match="answers 404 Not Found") as missing:
        read(f"http://{server.host}/never", fast())
    assert missing.value.exit_code == 66
    assert len(server.asked("never")) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410, 412, 416])
def test_what_is_not_tried_again(server: FaultServer, status: int) -> None:
    for faults in ([], [Fault("cut", 5)]):
        url = server.put(f"no{status}", DATA, *faults, Fault("status", status=status))
        server.requests.clear()
        with pytest.raises(StreamError if faults or status not in (404, 410) else MissingInputError) as caught:
            read(url, fast())
        assert not isinstance(caught.value, TemporaryStreamError)
        assert str(status) in str(caught.value)
        assert len(server.requests) == len(faults) + 1


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
def test_what_is_given_up(server: FaultServer, status: int) -> None:
    url = server.put("bad", DATA, Fault("cut", 7), always=Fault("status", status=status))
    server.requests.clear()
    with pytest.raises(TemporaryStreamError, match="failed after 5 attempts in a row") as caught:
        read(f"{url}?sig={CANARY}", fast(attempts=5))
    # The cut, and four answers; the cut was the first failure after the last progress.
    assert len(server.requests) == 5
    assert caught.value.offset == 7
    assert f"/bad?sig=…, offset 7: the server answers {status}" in str(caught.value)
    assert caught.value.exit_code == 75


def test_progress_begins_the_count_anew(server: FaultServer) -> None:
    faults = [Fault("cut", 100), Fault("status"), Fault("drop")] * 20
    assert read(server.put("slow", DATA, *faults), fast(attempts=4)) == DATA
    with pytest.raises(TemporaryStreamError, match=r"offset 100: .*failed after 3 attempts"):
        read(server.put("slow", DATA, *faults), fast(attempts=3))


def test_retry_after(server: FaultServer) -> None:
    date = email.utils.formatdate(1_700_000_000 + 40, usegmt=True)
    for value, least in (("17", 17.0), (date, None), ("soon", 0.0), ("-1", 0.0), ("0", 0.0)):
        times = Times()
        url = server.put("later", DATA, Fault("status", status=429, headers=(("Retry-After", value),)))
        if least is None:
            # Against the clock of the server, which shows the true time: that date is long past.
            assert read(url, fast(times)) == DATA
            assert times.waited < 1
        else:
            assert read(url, fast(times)) == DATA
            assert least <= times.waited <= least + 0.5
    far = server.put("far", DATA, Fault("status", status=503, headers=(("Retry-After", "100000"),)))
    times = Times()
    with pytest.raises(TemporaryStreamError, match="asking to wait 100000 s; failed after 1 attempt "):
        read(far, fast(times))
    assert times.waited == 0


def test_lengths_that_lie(server: FaultServer) -> None:
    # More is announced than there is: the object can never be had whole.
    with pytest.raises(StreamError, match=r"offset 300000: .*416"):
        read(server.put("lie", DATA, always=Fault("longer", 5)), fast())
    # Less is announced than comes.
    with pytest.raises(StreamError, match="sends more than the 299995 bytes that it announced"):
        read(server.put("lie", DATA, always=Fault("shorter", 5)), fast())
    with pytest.raises(StreamError, match="sends more than the 1 bytes"):
        read(server.put("lie", b"abc", always=Fault("shorter", 2)), fast())
    # In the answer to a range only: seen, and tried again.
    for kind in ("longer", "shorter"):
        assert read(server.put("lie", DATA, Fault("cut", 1000), Fault(kind, 5)), fast()) == DATA


def test_an_error_page_is_never_spliced_in(server: FaultServer) -> None:
    url = server.put("page", DATA, Fault("cut", 20), always=Fault("error-body"))
    with pytest.raises(TemporaryStreamError, match="has no ETag, so it may not be the object; failed after 8"):
        read(url, fast())
    # Without any validator: by its length, or by what it begins with.
    url = server.put("page", DATA, Fault("cut", 20), etag="", always=Fault("error-body"))
    with pytest.raises(TemporaryStreamError, match="answers with 36 bytes, but the object had 300000"):
        read(url, fast())
    url = server.put("page", b"x" * 36, Fault("cut", 20), etag="", always=Fault("error-body"))
    with pytest.raises(StreamError, match="changed while it was read: its first bytes are different"):
        read(url, fast())
    # After an answer that falls silent. On a busy machine an error page may be late, too.
    url = server.put("page", DATA, always=Fault("cut", 20))
    with open_read(url, retry=fast(timeout=0.3), read_ahead=0, compression=None) as stream:
        got = stream.read(20)
        server.objects["page"].faults, server.objects["page"].always = [Fault("stall", 100)], Fault("error-body")
        with pytest.raises(TemporaryStreamError, match=r"no ETag.*; failed after 8|no answer.*; failed after 8"):
            while data := stream.read(1000):
                got += data
    assert DATA.startswith(got)


@pytest.mark.parametrize(
    ("etag", "modified", "ranged"),
    [('W/"a"', "", True), ('W/"a"', OLD, True), ("", OLD, True), ("", "", False), ("", "now", False)],
)
def test_validators(server: FaultServer, etag: str, modified: str, ranged: bool) -> None:
    if modified == "now":
        # It could change again within this second, and look the same.
        modified = email.utils.formatdate(usegmt=True)
        modified = email.utils.formatdate(email.utils.parsedate_to_datetime(modified).timestamp() + 60, usegmt=True)
    faults = Fault("cut", 100_000), Fault("cut", 150_000)
    url = server.put("v", DATA, *faults, etag=etag, modified=modified)
    server.requests.clear()
    assert read(url, fast()) == DATA
    asked = server.asked("v")[1:]
    assert all(("Range" in headers) == ranged for headers in asked)
    assert not any("If-Match" in headers for headers in asked)
    assert [headers.get("If-Unmodified-Since") for headers in asked] == [OLD if modified == OLD else None] * len(asked)


def test_replaced_without_a_validator(server: FaultServer) -> None:
    url = server.put("novalidator", DATA, Fault("cut", 100_000), Fault("replace"), etag="")
    with pytest.raises(StreamError, match="its first bytes are different"):
        read(url, fast())
    # With one at first, but none later: nobody can tell, so it is not taken.
    url = server.put("novalidator", DATA, Fault("cut", 100_000), always=Fault("no-validator"))
    with pytest.raises(TemporaryStreamError, match="has no ETag"):
        read(url, fast())


@pytest.mark.parametrize("etag", ["", '"a"'])
@pytest.mark.parametrize("range_kind", ["", "no-range"])
def test_unknown_length(server: FaultServer, etag: str, range_kind: str) -> None:
    always = Fault(range_kind)
    for chunked in (True, False):
        more = {"length": False, "chunked": chunked, "etag": etag, "always": always}
        assert read(server.put("u", DATA, **more), fast()) == DATA
        assert read(server.put("u", b"", **more), fast()) == b""
        # A cut that looks like an end.
        faults = [Fault("cut", 100_000), Fault("cut", 250_000), Fault("reset", 1)]
        assert read(server.put("u", DATA, *faults, **more), fast()) == DATA


def test_empty_object(server: FaultServer) -> None:
    assert read(server.put("empty", b""), fast()) == b""


def test_content_encoding(server: FaultServer) -> None:
    packed = gzip.compress(DATA)
    url = server.put("a.tgz", packed, Fault("cut", 100), headers=(("Content-Encoding", "x-gzip"),))
    assert read(url, fast()) == packed
    with open_read(url, retry=fast()) as stream:
        assert stream.read(10) == DATA[:10]
    url = server.put("a", DATA, headers=(("Content-Encoding", "br"),))
    with pytest.raises(StreamError, match="Content-Encoding of its own, although identity was requested"):
        read(url, fast())
    url = server.put("b.tgz", packed, Fault("cut", 100), Fault("drop"), headers=(("Content-Encoding", "gzip"),))
    with open_read(url, retry=fast(attempts=4), read_ahead=0, compression=None) as stream:
        assert stream.read(1)
        server.objects["b.tgz"].headers = ()
        with pytest.raises(TemporaryStreamError, match="changed the Content-Encoding of a resumed read"):
            while stream.read(1000):
                pass


@pytest.mark.parametrize("label", ["gzip", "X-Gzip"])
def test_a_content_encoding_that_the_name_does_not_have_is_undone(server: FaultServer, label: str) -> None:
    packed = gzip.compress(DATA)
    headers = (("Content-Encoding", label),)
    url = server.put("labels.txt", packed, Fault("cut", 100_000), headers=headers)
    assert read(f"{url}?a=x.gz", fast()) == DATA
    assert read_range(url, 1000, 200_000, size=len(DATA), retry=fast()) == DATA[1000:200_000]
    assert identify(url, fast()).size is None
    # A tar that is compressed in itself, and once more on its way.
    url = server.put("s.tar.xz", gzip.compress(lzma.compress(DATA)), headers=headers)
    with open_read(url, retry=fast()) as stream:
        assert b"".join(iter(lambda: stream.read(1 << 20), b"")) == DATA
    url = server.put("cut.txt", packed[:-9], headers=headers)
    with pytest.raises(CompressionError, match=r"cut\.txt"):
        read(url, fast())


def b64(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


CRC = struct.pack(">I", google_crc32c.value(DATA))
MD5 = hashlib.md5(DATA).digest()
SHA = hashlib.sha256(DATA).digest()


@pytest.mark.parametrize(
    ("good", "bad", "more"),
    [
        (("x-goog-hash", f"crc32c={b64(CRC)},md5={b64(MD5)}"), f"crc32c={b64(b'abcd')},md5={b64(MD5)}", ()),
        (("x-goog-hash", f"md5={b64(MD5)}"), f"md5={b64(SHA[:16])}", ()),
        (("Digest", f"sha-256={b64(SHA)}"), f"md5=x, SHA-256={b64(SHA[::-1])}", ()),
        (("Repr-Digest", f"sha-256=:{b64(SHA)}:"), f"sha-256=:{b64(SHA[::-1])}:", ()),
        (("Content-MD5", b64(MD5)), b64(MD5[::-1]), ()),
        (("x-amz-checksum-crc32c", b64(CRC)), b64(CRC[::-1]), (("x-amz-checksum-type", "FULL_OBJECT"),)),
        (("x-amz-checksum-sha256", b64(SHA)), b64(SHA[::-1]), (("x-amz-checksum-type", "FULL_OBJECT"),)),
    ],
)
def test_checksums(server: FaultServer, good: tuple[str, str], bad: str, more: tuple[tuple[str, str], ...]) -> None:
    faults = Fault("cut", 100_000), Fault("cut", 3)
    assert read(server.put("sum", DATA, *faults, headers=(good, *more)), fast()) == DATA
    url = server.put("sum", DATA, *faults, headers=((good[0], bad), *more))
    with pytest.raises(
        StreamError, match=r"of the received bytes is [0-9a-f]+, but the store gives [0-9a-f]+"
    ) as caught:
        read(url, fast())
    assert caught.value.offset == len(DATA)
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    "headers",
    [
        (("x-goog-hash", "crc32c=AAAAAA==,md5=short"), ("x-goog-stored-content-encoding", "gzip")),
        (("x-goog-hash", "crc32c=none"), ("Digest", "sha-256=no,base64")),
        (("x-amz-checksum-sha256", b64(bytes(32)) + "-7"), ("x-amz-checksum-type", "FULL_OBJECT")),
        (("x-amz-checksum-sha256", b64(bytes(32))), ("x-amz-checksum-type", "COMPOSITE")),
    ],
)
def test_what_is_no_checksum_of_the_whole(server: FaultServer, headers: tuple[tuple[str, str], ...]) -> None:
    assert read(server.put("nosum", DATA, headers=headers), fast()) == DATA


@pytest.mark.parametrize(
    ("change", "host", "used"),
    [
        ({}, "b.s3.amazonaws.com", True),
        ({"x-amz-server-side-encryption": "AES256"}, "b.s3.amazonaws.com", True),
        ({"x-amz-server-side-encryption": "aws:kms"}, "b.s3.amazonaws.com", False),
        ({"x-amz-server-side-encryption": "aws:kms:dsse"}, "b.s3.amazonaws.com", False),
        ({"x-amz-server-side-encryption-customer-algorithm": "AES256"}, "b.s3.amazonaws.com", False),
        ({"ETag": f'"{MD5.hex()}-3"'}, "b.s3.amazonaws.com", False),
        ({"ETag": f'W/"{MD5.hex()}"'}, "b.s3.amazonaws.com", False),
        ({"Server": "nginx"}, "b.s3.amazonaws.com", False),
        ({}, "b--x-s3.s3express-use1-az4.us-east-1.amazonaws.com", False),
    ],
)
def test_the_etag_of_amazon_is_used_where_it_is_an_md5(change: dict[str, str], host: str, used: bool) -> None:
    headers = Message()
    for name, value in {"Server": "AmazonS3", "ETag": f'"{MD5.hex()}"', **change}.items():
        headers[name] = value
    checksum = from_headers(headers, host)
    assert (checksum is not None) == used
    if checksum is not None:
        assert checksum.name == "md5"
        checksum.update(DATA[:1000])
        assert checksum.problem()
        checksum.update(DATA[1000:])
        assert checksum.problem() is None


def test_identity(server: FaultServer) -> None:
    url = server.put("h", DATA, Fault("drop"), Fault("status"), etag='"e"', modified=OLD)
    assert identify(url, fast()) == (len(DATA), 'ETag: "e"')
    assert identify(server.put("h", DATA, etag="", modified=OLD)) == (len(DATA), f"Last-Modified: {OLD}")
    assert identify(server.put("h", DATA, etag="", length=False)) == (None, None)
    with pytest.raises(MissingInputError, match=r"^http://[\d.:]+/none\?token=…: the server answers 404"):
        identify(f"http://{server.host}/none?token=secret")


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> str:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is missing: apt-get install openssl")
    path = str(tmp_path_factory.mktemp("tls") / "both.pem")
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", path, "-out", f"{path}.crt"]
    subprocess.run(command, check=True, capture_output=True)
    with open(f"{path}.crt") as public, open(path, "a") as both:
        both.write(public.read())
    return path


def test_https(certificate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Fault("cut", 100_000), Fault("reset", 50_000), Fault("status"), Fault("stall", 10)
    with FaultServer(certificate) as server:
        url = server.put("t", DATA, *faults)
        # Nobody vouches for it: that is no question of patience.
        with pytest.raises(StreamError, match=r"no answer from the server .*CERTIFICATE_VERIFY_FAILED") as caught:
            read(url, fast())
        assert not isinstance(caught.value, TemporaryStreamError)
        monkeypatch.setenv("SSL_CERT_FILE", certificate)
        opener.cache_clear()
        try:
            assert read(url, patient(0.5)) == DATA
            with pytest.raises(StreamError, match="sends more than the 299995 bytes"):
                read(server.put("t", DATA, always=Fault("shorter", 5)), fast())
            stream = open_read(server.put("t", DATA, Fault("stall", 100_000)), compression=None)
            assert stream.read(1) == DATA[:1]
            time.sleep(0.05)
            begin = time.monotonic()
            stream.close()
            assert time.monotonic() - begin < 20
        finally:
            opener.cache_clear()


# Random schedules


def outcome_of_schedule(server: FaultServer, seed: int) -> str:
    draw = random.Random(seed)
    data = draw.randbytes(draw.randrange(1000, 60_000))
    path = f"random-{seed}"
    faults: list[Fault] = []
    for _ in range(draw.randrange(1, 12)):
        # While no byte has come, the next answer is the first one. A reset can overtake the
        # headers.
        first = all(f.kind in ("drop", "status", "reset") or (f.kind in ("cut", "frame") and f.at < 20) for f in faults)
        # It is not silent, since it is waited for with more patience.
        drawn = iter(lambda: random_fault(draw, len(data), first), None)  # noqa: B023
        faults.append(next(fault for fault in drawn if not first or fault.kind != "stall"))
    etag = draw.choice(["", "default", "default", 'W/"weak"'])
    more = {} if etag == "default" else {"etag": etag, "modified": draw.choice(["", OLD])}
    url = server.put(path, data, *faults, chunked=draw.random() < 0.5, conditions=draw.random() < 0.5, **more)
    # What is not silent may take its time: how often it is tried again is the schedule's, not the
    # machine's.
    silent = any(fault.kind == "stall" for fault in faults)
    retry = fast(seed=seed, timeout=5.0, attempts=draw.choice([2, 8]))
    both = [data, bytes(255 - byte for byte in data)]
    got = b""
    try:
        with open_read(url, retry=retry, read_ahead=draw.choice([0, 1000, 1 << 20]), compression=None) as stream:
            while len(got) < 20 and (part := stream.read(20)):
                got += part
            if silent:
                # From here on any answer may be late on a busy machine. If the first one were, an
                # error page that comes later would be the object.
                object.__setattr__(retry, "timeout", 0.1)
            while part := stream.read(draw.randrange(1, 9000)):
                got += part
    except TarkitError as error:
        assert isinstance(error, StreamError), f"seed {seed}: {error!r}"
        assert error.exit_code in (1, 75)
        # What was given out before is right, too.
        assert any(whole.startswith(got) for whole in both), f"seed {seed}: {faults}"
        return "error"
    assert got in both, f"seed {seed}: {len(got)} of {len(data)}: {faults}"
    return "whole"


def test_random_schedules(server: FaultServer) -> None:
    # Most of the time is that of silent servers, so several wait at once.
    with ThreadPoolExecutor(8) as pool:
        outcomes = Counter(pool.map(lambda seed: outcome_of_schedule(server, seed), range(300)))
    assert outcomes["whole"] > 90 and outcomes["error"] > 15, outcomes


def test_the_schedules_hold_every_fault() -> None:
    seen = {random_fault(random.Random(seed), 100, first=False).kind for seed in range(200)}
    assert seen == set(KINDS)


# Secrets


@pytest.mark.parametrize("kind", ["status", "drop", "reset", "longer", "replace", "error-body", "no-validator"])
def test_tokens_are_in_no_error(server: FaultServer, kind: str) -> None:
    etag = f'"{CANARY}"'
    server.put(
        "secret",
        DATA,
        Fault("cut", 9),
        always=Fault(kind, 5 * (kind == "longer")),
        etag=etag,
        headers=(("Set-Cookie", CANARY),),
    )
    url = f"http://user:{CANARY}@{server.host}/secret?X-Amz-Signature={CANARY}&t={CANARY}#{CANARY}"
    with pytest.raises(TarkitError) as caught:
        read(url, fast(attempts=3))
        server.put("secret", DATA, always=Fault("status", status=403))
        read(url, fast())
    shown = f"{caught.value}{caught.value!r}{caught.value.__cause__}"
    assert CANARY not in shown
    assert base64.b64encode(f"user:{CANARY}".encode()).decode()[:20] not in shown
    assert "user" not in shown
    asked = server.asked("secret")[-1]
    assert asked["Authorization"].startswith("Basic ")


def test_redirects(server: FaultServer) -> None:
    server.put("target", DATA, Fault("cut", 100_000))
    there = (("Location", f"http://{server.host}/target?sig={CANARY}"),)
    url = server.put("moved", b"", always=Fault("status", status=302, headers=there))
    assert read(url.replace("//", "//me:pw@"), fast()) == DATA
    # Every attempt begins at the URL that was given: what it leads to may be valid for minutes
    # only.
    assert len(server.asked("moved")) == len(server.asked("target"))
    assert ranges(server, "target")[:2] == ["", "bytes=100000-"]
    assert not any("Authorization" in headers for headers in server.asked("target"))


NOT_URLS = ["ftp://u:{}@h/x", "file:///{}", "http://127.0.0.1:{}/x", "http://[{}/x", "http://:80/{}", "http://a..{}/x"]


@pytest.mark.parametrize("there", NOT_URLS)
def test_a_redirect_to_what_is_not_a_url_is_an_error_without_its_text(server: FaultServer, there: str) -> None:
    headers = (("Location", there.format(CANARY)),)
    url = server.put("astray", b"", always=Fault("status", status=302, headers=headers))
    server.requests.clear()
    with pytest.raises(StreamError, match="/astray: redirected to an address that is not a URL") as caught:
        read(url, fast())
    # It was not tried again, and a UsageError would put the blame on a URL that is right.
    assert not isinstance(caught.value, TemporaryStreamError)
    assert len(server.asked("astray")) == 1
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("there", ["http://me:{}@127.0.0.1:1/x", "http://me:{}@127.0.0.1:1/x?sig={}#{}"])
def test_an_address_that_was_redirected_to_and_fails_is_named_without_secrets(server: FaultServer, there: str) -> None:
    headers = (("Location", there.format(CANARY, CANARY, CANARY)),)
    url = server.put("gone", b"", always=Fault("status", status=302, headers=headers))
    message = r"/gone: redirected to 127\.0\.0\.1:1: no answer from the server .*refused.* after 3 attempts"
    with pytest.raises(TemporaryStreamError, match=message) as caught:
        read(url, fast(attempts=3))
    assert CANARY not in str(caught.value)
    headers = (("Location", f"http://me:{CANARY}@{server.host}/missing?sig={CANARY}"),)
    url = server.put("gone", b"", always=Fault("status", status=302, headers=headers))
    with pytest.raises(
        MissingInputError, match=r"/gone: redirected to 127\.0\.0\.1:\d+: the server answers 404"
    ) as missing:
        read(url, fast())
    assert CANARY not in str(missing.value)


def test_a_password_in_a_redirect_is_for_the_host_that_it_names(server: FaultServer) -> None:
    server.put("target", DATA)
    server.requests.clear()
    headers = (("Location", f"http://you:other@{server.host}/target"),)
    url = server.put("moved", b"", always=Fault("status", status=307, headers=headers))
    assert read(url.replace("//", "//me:pw@"), fast()) == DATA
    (asked,) = server.asked("target")
    assert base64.b64decode(asked["Authorization"].split()[1]) == b"you:other"
    assert asked["Host"] == server.host


def test_redirects_that_do_not_end_are_an_error(server: FaultServer) -> None:
    url = server.put("loop", b"", always=Fault("status", status=302, headers=(("Location", f"/loop?s={CANARY}"),)))
    with pytest.raises(StreamError, match="/loop: the server redirected 10 times") as caught:
        read(url, fast())
    assert not isinstance(caught.value, TemporaryStreamError)


PROXIES = [f"http://{CANARY}:@127.0.0.1:xx", f"socks5://{CANARY}@127.0.0.1:1", f"{CANARY}:x", f"http://[{CANARY}"]


@pytest.mark.parametrize("proxy", PROXIES)
def test_a_proxy_that_is_not_a_url_is_named(server: FaultServer, monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    url = server.put("direct", DATA)
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.delenv("no_proxy", raising=False)
    opener.cache_clear()
    try:
        with pytest.raises(UsageError, match=r"^http_proxy of the environment is not a URL: ") as caught:
            read("http://example.test/a", fast())
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert read(url, fast()) == DATA
    finally:
        opener.cache_clear()
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:{}/a", "http://[{}/a", "http:///{}", "http://h/{}\n", "http://h/a b{}"]
)
def test_what_is_not_a_url_is_an_error_without_its_secrets(url: str) -> None:
    with pytest.raises(UsageError, match="is not a URL: it") as caught:
        read(url.format("me") + f"?sig={CANARY}", fast())
    assert CANARY not in str(caught.value)
