"""Answers of object stores that do not fit what was asked: a failed attempt, and the same bytes are
asked for again.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import random
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from lyingstore import KINDS, NAMES, Answer, Lie, LyingStore, lying_store
from times import fast

from tarkit.errors import DataError, GivenUpError, StreamError
from tarkit.store.cache import PartCache
from tarkit.store.cachedread import open_through_cache
from tarkit.store.objects import source
from tarkit.store.rangedfile import RangedFile
from tarkit.store.read import open_read, read_range
from tarkit.store.retry import Retry
from tarkit.store.transfer import copy_file

DATA = random.Random(4).randbytes(300_000)
PAGE = b"<html><body>Please log in to the network.</body></html>"


@pytest.fixture(params=KINDS, scope="module")
def running(request: pytest.FixtureRequest) -> Iterator[LyingStore]:
    """Shared, since making a client of S3 takes a third of a second."""
    with lying_store(request.param, DATA) as store:
        yield store


@pytest.fixture
def store(running: LyingStore) -> LyingStore:
    running.begin(DATA)
    return running


@pytest.fixture(autouse=True)
def small_requests_and_no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_FIRST_REQUEST", 100_000)
    monkeypatch.setattr(Retry, "wait_before", lambda self, failures: 0.0)


def page(answer: Answer) -> None:
    answer.status, answer.headers, answer.content = 200, {"Content-Type": "text/html"}, PAGE


def page_with_range(answer: Answer) -> None:
    answer.content = PAGE


def page_of_that_length(answer: Answer) -> None:
    answer.status, answer.headers = 200, {"Content-Type": "text/html"}
    answer.content = PAGE.ljust(len(answer.content))


def whole(answer: Answer) -> None:
    answer.status, answer.content = 200, DATA
    del answer.headers["Content-Range"]


def no_range(answer: Answer) -> None:
    del answer.headers["Content-Range"]


def other_range(answer: Answer) -> None:
    answer.headers["Content-Range"] = f"bytes 10-{9 + len(answer.content)}/{len(DATA)}"


def other_total(answer: Answer) -> None:
    answer.headers["Content-Range"] = answer.headers["Content-Range"].rpartition("/")[0] + "/12"


def longer(answer: Answer) -> None:
    answer.content += b"x"


def other_object(answer: Answer) -> None:
    name = "x-goog-generation" if "x-goog-generation" in answer.headers else "ETag"
    answer.headers[name] = '"18"'


def no_mark(answer: Answer) -> None:
    answer.headers["x-goog-generation" if "x-goog-generation" in answer.headers else "ETag"] = ""


def encoded(answer: Answer) -> None:
    answer.headers["Content-Encoding"] = "gzip"
    answer.content = gzip.compress(answer.content)


def encoded_to_that_length(answer: Answer) -> None:
    answer.headers["Content-Encoding"] = "gzip"
    answer.content = gzip.compress(PAGE).ljust(len(answer.content), b"\0")


def moved(answer: Answer) -> None:
    answer.status, answer.headers = 302, {"Location": "http://127.0.0.1:9/elsewhere"}


LIES: list[Lie] = [
    *(page, page_with_range, page_of_that_length, whole, no_range, other_range, other_total, longer, other_object),
    *(no_mark, encoded, encoded_to_that_length, moved),
]


def read_all(store: LyingStore, attempts: int = 8) -> bytes:
    with open_read(NAMES[store.kind], compression=None, retry=fast(attempts=attempts)) as stream:
        return b"".join(iter(lambda: stream.read(1 << 18), b""))


@pytest.mark.parametrize("lie", LIES)
def test_an_answer_that_does_not_fit_is_a_failed_attempt_that_resumes(store: LyingStore, lie: Lie) -> None:
    name = NAMES[store.kind]
    store.lies = [lie, None, lie]
    assert read_all(store) == DATA
    assert store.lies == []
    store.lies = [lie]
    assert read_range(name, 1000, 90_000, size=len(DATA), retry=fast()) == DATA[1000:90_000]
    assert store.lies == []


@pytest.mark.parametrize("lie", [page_with_range, other_object, encoded])
def test_a_store_that_never_answers_what_was_asked_gives_nothing(store: LyingStore, lie: Lie) -> None:
    name = NAMES[store.kind]
    store.lies = [lie] * 9
    with pytest.raises(GivenUpError, match=rf"^{name}, offset 0: .*; failed after 2 attempts"):
        read_all(store, attempts=2)
    with pytest.raises(GivenUpError, match=rf"^{name}, offset 0: .*; failed after 2 attempts"):
        read_range(name, 1000, 90_000, size=len(DATA), retry=fast(attempts=2))


@pytest.mark.parametrize("lie", [page_of_that_length, other_object, encoded_to_that_length])
def test_copies_caches_and_files_by_ranges_are_made_of_what_was_asked(
    store: LyingStore, lie: Lie, tmp_path: Path
) -> None:
    name = NAMES[store.kind]
    store.lies = [lie]
    assert copy_file(name, str(tmp_path / "x.tar")) == len(DATA)
    assert (tmp_path / "x.tar").read_bytes() == DATA
    cache = PartCache(tmp_path / "cache")
    for lies in ([lie], []):
        store.lies = lies
        with open_through_cache(name, cache, mem=1 << 30) as stream:
            assert b"".join(iter(lambda: stream.read(1 << 20), b"")) == DATA
    store.lies = [lie]
    file = RangedFile(name)
    file.seek(5)
    assert file.read(100) == DATA[5:105]
    assert store.lies == []


def flipped(answer: Answer) -> None:
    at = len(answer.content) // 2
    answer.content = answer.content[:at] + bytes([answer.content[at] ^ 1]) + answer.content[at + 1 :]


def flipped_without_its_own_sum(answer: Answer) -> None:
    flipped(answer)
    answer.headers.pop("Content-MD5")


MD5 = base64.b64encode(hashlib.md5(DATA, usedforsecurity=False).digest()).decode()
CRC32 = base64.b64encode(zlib.crc32(DATA).to_bytes(4, "big")).decode()
SUMS: list[tuple[str, dict[str, str], Lie, str]] = [
    ("s3", {"Server": "AmazonS3"}, flipped, "the md5 of the received bytes is"),
    (
        "s3",
        {"x-amz-checksum-crc32": CRC32, "x-amz-checksum-type": "FULL_OBJECT"},
        flipped,
        "the crc32 of the received bytes is",
    ),
    ("s3", {"x-amz-checksum-crc32": CRC32}, flipped, "the crc32 of the received bytes is"),
    ("gs", {}, flipped, "the crc32c of the received bytes is"),
    ("az", {"Content-MD5": MD5}, flipped, "MD5 mismatch"),
    ("az", {"Content-MD5": MD5}, flipped_without_its_own_sum, "the md5 of the received bytes is"),
]


@pytest.mark.parametrize(("kind", "headers", "lie", "said"), SUMS)
def test_a_flipped_body_of_the_right_length_is_found(kind: str, headers: dict[str, str], lie: Lie, said: str) -> None:
    with lying_store(kind, DATA) as store:
        store.extra = headers
        assert read_all(store) == DATA
        store.lies = [lie] * 9
        with pytest.raises(StreamError, match=said):
            read_all(store, attempts=2)


NOT_OF_THE_WHOLE = [
    {"Server": "other"},
    {"Server": "AmazonS3", "ETag": '"0-3"'},
    {"x-amz-checksum-crc32": "AAAAAA==", "ETag": '"0-3"'},
    {"x-amz-checksum-crc32": "AAAAAA==", "x-amz-checksum-type": "COMPOSITE"},
]


@pytest.mark.parametrize("headers", NOT_OF_THE_WHOLE)
def test_what_need_not_be_a_sum_of_the_whole_is_not_taken_for_one(headers: dict[str, str]) -> None:
    with lying_store("s3", DATA) as store:
        store.extra = {"ETag": f'"{"0" * 32}"', **headers}
        assert read_all(store) == DATA


def test_an_object_that_is_stored_compressed_is_read_as_it_is_stored(store: LyingStore) -> None:
    store.data = gzip.compress(DATA)
    store.extra["Content-Encoding"] = "gzip"
    store.stored["contentEncoding"] = "gzip"
    assert read_all(store) == store.data
    assert read_range(NAMES[store.kind], 5, 9, size=len(store.data), retry=fast()) == store.data[5:9]
    media = [headers for method, _, headers in store.asked if "bytes=" in f"{headers.get('range')}"]
    assert all(headers["accept-encoding"] == "gzip" for headers in media) or store.kind != "gs"


def test_an_object_of_another_length_is_named(store: LyingStore) -> None:
    with pytest.raises(DataError, match="had 17 when"):
        read_range(NAMES[store.kind], 0, 1, size=17, retry=fast())


def test_an_empty_object(store: LyingStore) -> None:
    store.data = b""
    assert read_all(store) == b""
