"""Where an HTTP answer is cut, and what its framing says that is not so: the object bit by bit, or
an error.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from rawserver import RawServer, raw_server
from times import fast

from tarkit.errors import StreamError, TemporaryStreamError
from tarkit.store.hdfs.rest import WebHdfsClient
from tarkit.store.hdfs.resturl import parse_address
from tarkit.store.read import open_read, read_range
from tarkit.store.retry import Dropped

HEAD = b'HTTP/1.1 200 OK\r\nServer: raw\r\nETag: "a"\r\nConnection: close\r\n'
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
# Lines that are sizes themselves, and bytes that are nothing.
TEXT = b"".join(b"%x\r\n" % number for number in range(20))
NOISE = random.Random(3).randbytes(60)


@pytest.fixture(scope="module")
def server() -> Iterator[RawServer]:
    with raw_server() as running:
        yield running


def read(server: RawServer, *answers: bytes, attempts: int = 2, read_ahead: int = 0) -> bytes:
    server.answers = list(answers)
    retry = fast(attempts=attempts)
    with open_read(server.url, retry=retry, read_ahead=read_ahead, compression=None) as stream:
        return b"".join(iter(lambda: stream.read(7), b""))


def chunks(data: bytes, step: int, size: str = "%x", more: bytes = b"", trailers: bytes = b"") -> bytes:
    pieces = [data[at : at + step] for at in range(0, len(data), step)]
    body = b"".join((size % len(piece)).encode() + more + b"\r\n" + piece + b"\r\n" for piece in pieces)
    return body + (size % 0).encode() + more + b"\r\n" + trailers + b"\r\n"


BODIES = {
    "plain": (TEXT, chunks(TEXT, 17)),
    "extensions": (NOISE, chunks(NOISE, 25, "%X", b' ;name="a value"')),
    "trailers": (NOISE, chunks(NOISE, 25, "%04x", trailers=b"Expires: never\r\nX-Sum: 0\r\n")),
    "empty": (b"", chunks(b"", 1)),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_chunked_body_cut_at_every_byte_is_an_error_or_goes_on(server: RawServer, name: str) -> None:
    data, body = BODIES[name]
    answer = CHUNKED + body
    assert read(server, answer) == data
    for cut in range(len(answer)):
        with pytest.raises(TemporaryStreamError, match="failed after 2 attempts"):
            read(server, answer[:cut])
        assert read(server, answer[:cut], answer) == data, cut


@pytest.mark.parametrize("length", [len(TEXT), 0])
def test_an_answer_with_a_length_cut_at_every_byte_is_an_error(server: RawServer, length: int) -> None:
    answer = HEAD + b"Content-Length: %d\r\n\r\n" % length + TEXT[:length]
    for cut in range(len(answer)):
        with pytest.raises(TemporaryStreamError):
            read(server, answer[:cut])
        assert read(server, answer[:cut], answer) == TEXT[:length]


def test_a_body_that_ends_with_the_connection_is_believed_at_the_same_place_twice(server: RawServer) -> None:
    answer = HEAD + b"\r\n" + TEXT
    begin = len(HEAD) + 2
    assert read(server, answer) == TEXT
    assert read(server, answer[: begin + 10], answer) == TEXT
    # This is what cannot be known; a head that is cut can.
    assert read(server, answer[: begin + 10]) == TEXT[:10]
    for cut in range(begin):
        with pytest.raises(TemporaryStreamError):
            read(server, answer[:cut])


SIZES = [
    b"",
    b" ",
    b"-%x",
    b"+%x",
    b"0x%x",
    b" %x",
    b"%x_",
    b"0_%x",
    b"%x,%x",
    b"%xg",
    b"%x;\n",
    b"f" * 17,
    b"\xd9\xa1",
]


@pytest.mark.parametrize("data", [TEXT, NOISE], ids=["text", "noise"])
def test_a_size_that_is_not_a_number_is_an_error(server: RawServer, data: bytes) -> None:
    right = b"%x\r\n" % len(data) + data + b"\r\n0\r\n\r\n"
    for size in SIZES:
        line = size % ((len(data),) * size.count(b"%x"))
        with pytest.raises(TemporaryStreamError, match="the size of a chunk is not a number"):
            read(server, CHUNKED + right.replace(b"%x\r\n" % len(data), line + b"\r\n", 1))


@pytest.mark.parametrize("data", [TEXT, NOISE], ids=["text", "noise"])
def test_a_size_that_lies_is_an_error(server: RawServer, data: bytes) -> None:
    half = len(data) // 2
    for first in range(len(data) + 20):
        # The size of both chunks with the framing in between is no lie but another body.
        whole = len(data) + len(b"\r\n%x\r\n" % (len(data) - half))
        pieces = (b"%x\r\n" % first + data[:half] + b"\r\n", b"%x\r\n" % (len(data) - half) + data[half:] + b"\r\n")
        if first in (half, whole):
            continue
        with pytest.raises(StreamError):
            read(server, CHUNKED + b"".join(pieces) + b"0\r\n\r\n")


@pytest.mark.parametrize(
    "after",
    [b"\n", b"\r\r\n", b"0\n\r\n", b"0\r\n\n", b"0\r\nno trailer\r\n\r\n", b"0\r\n" + b"a: b\r\n" * 101 + b"\r\n"],
)
def test_an_end_that_is_not_one_is_an_error(server: RawServer, after: bytes) -> None:
    with pytest.raises(TemporaryStreamError):
        read(server, CHUNKED + b"%x\r\n" % len(TEXT) + TEXT + b"\r\n" + after)


def test_what_follows_the_last_chunk_is_an_error(server: RawServer) -> None:
    with pytest.raises(StreamError, match=f"sends more than the {len(TEXT)} bytes that it announced"):
        read(server, CHUNKED + chunks(TEXT, 17) + b"more")


HEADS = [
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: identity\r\n",
    b"Content-Length: 20\r\nContent-Length: 75\r\n",
    b"Content-Length: 20, 75\r\n",
    b"Content-Length: -5\r\n",
    b"Content-Length: 1_0\r\n",
    b"Content-Length: 0x10\r\n",
    b"Content-Length: \r\n",
    b"Content-Length 75\r\n",
    b"garbage\r\nContent-Length: 75\r\n",
]


@pytest.mark.parametrize("head", HEADS)
def test_a_head_that_does_not_say_how_the_body_is_framed_is_an_error(server: RawServer, head: bytes) -> None:
    with pytest.raises(TemporaryStreamError, match="no answer from the server"):
        read(server, HEAD + head + b"\r\n" + TEXT)


def test_the_same_length_twice_is_one_and_chunks_count_more_than_a_length(server: RawServer) -> None:
    length = b"Content-Length: %d\r\n" % len(TEXT)
    assert read(server, HEAD + length + length + b"\r\n" + TEXT) == TEXT
    assert read(server, HEAD + b"Content-Length: 3\r\n" + CHUNKED[len(HEAD) :] + chunks(TEXT, 17)) == TEXT


def test_answers_before_the_answer_are_passed_over(server: RawServer) -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\nContent-Length: 3\r\n\r\n"
    before = b"HTTP/1.1 100 Continue\r\n\r\n" + hints + b"HTTP/1.1 102 Processing\r\n\r\n" + hints
    answer = before + HEAD + b"Content-Length: %d\r\n\r\n" % len(TEXT) + TEXT
    assert read(server, answer) == TEXT
    for cut in range(len(before)):
        with pytest.raises(TemporaryStreamError):
            read(server, answer[:cut])


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_an_answer_of_webhdfs_cut_at_every_byte_is_tried_again(server: RawServer, framing: str) -> None:
    text = b'{"FileStatus": {"pathSuffix": "", "type": "FILE", "length": 3, "modificationTime": 0}}'
    length = b"Content-Length: %d\r\n\r\n" % len(text)
    answer = HEAD + length + text if framing == "length" else CHUNKED + chunks(text, 30)
    address, path = parse_address(server.url.replace("http", "webhdfs"))
    client = WebHdfsClient(address, fast())
    server.answers = [answer]
    assert client.status(path).size == 3
    for cut in range(len(answer)):
        server.answers = [answer[:cut]]
        with pytest.raises(Dropped):
            client.status(path)


PART = HEAD.replace(b"200 OK", b"206 Partial Content") + b"Content-Range: bytes 10-19/%d\r\n" % len(TEXT)


@pytest.mark.parametrize("encode", [bytes, lambda data: chunks(data, 17)], ids=["plain", "chunked"])
def test_a_part_of_no_length_is_no_longer_than_its_range(server: RawServer, encode: Callable[[bytes], bytes]) -> None:
    head = PART + (b"\r\n" if encode is bytes else b"Transfer-Encoding: chunked\r\n\r\n")
    right, whole = head + encode(TEXT[10:20]), head + encode(TEXT)
    for answers in ((right,), (whole, right), (whole, whole, right)):
        server.answers = [*answers]
        assert read_range(server.url, 10, 20, size=len(TEXT), retry=fast(attempts=3)) == TEXT[10:20]
    server.answers = [whole]
    with pytest.raises(TemporaryStreamError, match="more bytes than the range that it states"):
        read_range(server.url, 10, 20, size=len(TEXT), retry=fast(attempts=2))


def test_where_no_answer_has_a_length_a_part_is_read_from_the_beginning(server: RawServer) -> None:
    """A server that answers 200 with a part of the object would else be taken for one that ignores
    the range.
    """
    server.answers = [HEAD + b"\r\n" + TEXT[10:], HEAD + b"\r\n" + TEXT, HEAD + b"\r\n" + TEXT[10:]]
    assert read_range(server.url, 10, 20, size=len(TEXT), retry=fast(attempts=2)) == TEXT[10:20]
