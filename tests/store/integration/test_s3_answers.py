"""Answers of an S3 server that are not what was asked for: an error, never an empty folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import fsspec
import pytest
from rawserver import RawServer, raw_server
from s3_client import share_descriptions
from times import fast

from tarkit.errors import GivenUpError, MissingInputError, StreamError, TarkitError, TemporaryStreamError
from tarkit.store.entries import entries, glob
from tarkit.store.objects.filesystem import ask, filesystem
from tarkit.store.objects.s3 import S3Store, remove_unfinished
from tarkit.store.objects.sink import ObjectSink

XMLNS = "http://s3.amazonaws.com/doc/2006-03-01/"
ONE = "<Contents><Key>f/s1.tar</Key><Size>3</Size><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>"


def answer(body: str, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def listing(more: str, root: str = "ListBucketResult") -> bytes:
    return answer(f'<?xml version="1.0"?><{root} xmlns="{XMLNS}"><Name>b</Name>{more}</{root}>')


NOT_LISTINGS = {
    "a page": answer("<html><body>login</body></html>"),
    "nothing": answer(""),
    "an error": answer("<Error><Code>InternalError</Code><Message>x</Message></Error>"),
    "another answer": answer(f'<CopyObjectResult xmlns="{XMLNS}"><ETag>"a"</ETag></CopyObjectResult>'),
    "no place to go on": listing(f"<IsTruncated>true</IsTruncated>{ONE}"),
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RawServer]:
    share_descriptions()
    with raw_server() as running:
        endpoint = running.url.removesuffix("/object")
        monkeypatch.setitem(fsspec.config.conf, "s3", {"endpoint_url": endpoint, "key": "k", "secret": "s"})
        yield running


@pytest.mark.parametrize("kind", NOT_LISTINGS)
def test_an_answer_that_is_not_a_listing_is_an_error_and_not_an_empty_folder(server: RawServer, kind: str) -> None:
    server.answers = [NOT_LISTINGS[kind]]
    fs, path = filesystem("s3://b/f", "s3://b/f")
    calls: list[Callable[[], object]] = [lambda: fs.glob(f"{path}/s*.tar"), lambda: fs.find(path), lambda: fs.ls(path)]
    for call in calls:
        fs.invalidate_cache()
        with pytest.raises(GivenUpError, match=r"^s3://b/f: .*; failed after 2 attempts"):
            ask(call, url="s3://b/f", name="s3://b/f", retry=fast(attempts=2))


def test_a_listing_is_asked_for_again_until_it_is_one(server: RawServer) -> None:
    server.answers = [NOT_LISTINGS["a page"], listing(f"<IsTruncated>false</IsTruncated>{ONE}")]
    assert glob("s3://b/f/s*.tar") == ["s3://b/f/s1.tar"]
    fs, _ = filesystem("s3://b", "s3://b")
    fs.invalidate_cache()
    server.answers = [answer("", "404 Not Found"), listing(ONE), listing(ONE)]
    assert [entry.name for entry in entries("s3://b/f")] == ["s1.tar"]


def test_unfinished_uploads_are_not_taken_for_none_at_all(server: RawServer) -> None:
    more = listing("<IsTruncated>true</IsTruncated>", "ListMultipartUploadsResult")
    last = answer(f'<ListMultipartUploadsResult xmlns="{XMLNS}"><Bucket>b</Bucket></ListMultipartUploadsResult>')
    server.answers = [NOT_LISTINGS["nothing"], more, last]
    assert list(remove_unfinished("s3://b/f/", 1.0, 1e9)) == []
    assert len(server.requests) == 3


def test_a_field_that_an_answer_does_not_have_is_named(server: RawServer) -> None:
    def buckets() -> object:
        return {}["Buckets"]

    with pytest.raises(TarkitError, match=r"^s3://b: the store's answer has no 'Buckets'; failed after 2"):
        ask(buckets, url="s3://b", name="s3://b", retry=fast(attempts=2))


def refusal(status: str, code: str, text: str) -> bytes:
    return answer(f"<Error><Code>{code}</Code><Message>{text}</Message></Error>", status)


@pytest.mark.parametrize(
    ("status", "code", "kind", "words"),
    [
        ("400 Bad Request", "ExpiredToken", StreamError, "ExpiredToken: The reason is this."),
        ("403 Forbidden", "InvalidAccessKeyId", StreamError, "InvalidAccessKeyId: The reason is this."),
        ("400 Bad Request", "NeverHeardOf", StreamError, "An error occurred (NeverHeardOf) when calling"),
        ("404 Not Found", "NoSuchBucket", MissingInputError, "no such file (NoSuchBucket)"),
        ("404 Not Found", "NoSuchKey", MissingInputError, "no such file"),
        ("503 Service Unavailable", "SlowDown", GivenUpError, "SlowDown: The reason is this.; failed after 2 attempts"),
    ],
)
def test_an_error_is_shown_with_its_code(
    server: RawServer, status: str, code: str, kind: type[TarkitError], words: str
) -> None:
    server.answers = [refusal(status, code, "The reason is this.")]
    fs, _ = filesystem("s3://b/f", "s3://b/f")
    with pytest.raises(kind) as failed:
        ask(
            lambda: fs.call_s3("get_object", Bucket="b", Key="f"),
            url="s3://b/f",
            name="s3://b/f",
            retry=fast(attempts=2),
        )
    assert type(failed.value) is kind
    assert str(failed.value).startswith(f"s3://b/f: {words}")
    assert str(failed.value).count(code) <= 1


def test_an_upload_that_the_store_forgot_is_not_a_missing_bucket(server: RawServer) -> None:
    begun = answer(
        f'<InitiateMultipartUploadResult xmlns="{XMLNS}"><UploadId>u</UploadId></InitiateMultipartUploadResult>'
    )
    server.answers = [begun, refusal("404 Not Found", "NoSuchUpload", "The upload does not exist.")]
    fs, path = filesystem("s3://b/f", "s3://b/f")
    out = ObjectSink(S3Store(fs, path, "token", False), fs.loop, "s3://b/f", "s3://b/f", False, fast(attempts=2))
    out.write(bytes(20 << 20))
    with pytest.raises(TemporaryStreamError, match=r"the store does not know the upload any more.*\(NoSuchUpload\)"):
        out.commit()
    out.discard()
