"""webhdfs:// against a server whose answers are wrong in the ways that proxies and clusters are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import webhdfs_server
from webhdfs_server import FakeHdfs, Handler

from tarkit.errors import (
    AlreadyPublishedError,
    GivenUpError,
    MissingInputError,
    StreamError,
    TarkitError,
    TemporaryStreamError,
    UsageError,
)
from tarkit.runs.process import process
from tarkit.runs.status import progress_of
from tarkit.samples.read import read_samples
from tarkit.samples.tarwriter import TarWriter
from tarkit.specs.shardspec import expand
from tarkit.store.hdfs import place
from tarkit.store.resume import ResumingReader
from tarkit.store.retry import DEFAULT_RETRY, Retry

# No server here is silent for so long on purpose: a try that ends by time would be one more than is
# expected.
QUICK = Retry(attempts=4, base=0.0, timeout=60.0)
CANARY = "CANARY-7f3a9c"
CONTENT = bytes(range(256)) * 4000


def open_hdfs(url: str, retry: Retry = DEFAULT_RETRY) -> ResumingReader:
    return place.open_read(url, url, retry)


def open_hdfs_sink(url: str, *, if_absent: bool = False, retry: Retry = DEFAULT_RETRY) -> place.HdfsSink:
    return place.open_sink(url, url, if_absent=if_absent, retry=retry)


@pytest.fixture
def fake() -> Iterator[FakeHdfs]:
    with webhdfs_server.serve() as server:
        yield server


def url(fake: FakeHdfs, path: str) -> str:
    return f"webhdfs://{fake.authority}{path}?delegation={CANARY}"


def read(fake: FakeHdfs, path: str = "/a") -> bytes:
    reader = open_hdfs(url(fake, path), QUICK)
    try:
        return b"".join(iter(lambda: reader.read(100_000), b""))
    finally:
        reader.close()


def write(fake: FakeHdfs, content: bytes, path: str = "/a", **options: Any) -> None:
    sink = open_hdfs_sink(url(fake, path), retry=QUICK, **options)
    try:
        sink.write(content)
        sink.commit()
    except BaseException:
        sink.discard()
        raise


def remote(java_class: str, message: str = "because", status: int = 403) -> webhdfs_server.Answer:
    return lambda handler: handler.error(status, java_class, message)


def cut(at: int) -> webhdfs_server.Answer:
    """Announce the whole, send ``at`` bytes of it."""

    def answer(handler: Handler) -> None:
        content = handler.fake.files[handler.file][int(handler.query["offset"]) :]
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[:at])

    return answer


def test_read_goes_on_at_the_byte_where_it_was_cut(fake: FakeHdfs) -> None:
    fake.put("/a", CONTENT)
    fake.nasty["data-OPEN"] = [cut(1), cut(300_000), cut(0), cut(99_999)]
    assert read(fake) == CONTENT
    assert fake.calls.count("data-OPEN") == 5


def test_an_empty_file_is_read_and_written(fake: FakeHdfs) -> None:
    write(fake, b"")
    assert read(fake) == b""
    assert fake.files == {"/a": b""}


def test_read_that_is_always_cut_is_given_up(fake: FakeHdfs) -> None:
    fake.put("/a", CONTENT)
    fake.nasty["data-OPEN"] = [cut(10), *[cut(0)] * 10]
    with pytest.raises(TemporaryStreamError, match=r"offset 10.*failed after 4 attempts"):
        read(fake)


@pytest.mark.parametrize("status", [200, 404, 403])
def test_json_of_a_datanode_is_an_error_and_no_data(fake: FakeHdfs, status: int) -> None:
    fake.put("/a", CONTENT)
    fake.nasty["data-OPEN"] = [remote("java.io.FileNotFoundException", "gone", status)]
    with pytest.raises(MissingInputError, match="no such file"):
        read(fake)


def test_a_page_of_a_proxy_with_status_200_is_no_data(fake: FakeHdfs) -> None:
    fake.put("/a", CONTENT)
    fake.nasty["data-OPEN"] = [lambda h: h.reply(200, b"<html>sorry</html>", "text/html")] * 4
    with pytest.raises(TemporaryStreamError, match=f"sends 18 bytes, but {len(CONTENT)} were asked for"):
        read(fake)


NOT_BYTES: dict[str, tuple[webhdfs_server.Answer, str]] = {
    "a page of that length": (
        lambda h: h.reply(200, b"<html>".ljust(len(CONTENT)), "text/html"),
        "sends text/html in place of the file's bytes",
    ),
    "compressed to that length": (
        lambda h: h.reply(200, bytes(len(CONTENT)), "application/octet-stream", Content_Encoding="gzip"),
        "sends the bytes in a Content-Encoding that was not asked for",
    ),
}


@pytest.mark.parametrize("kind", NOT_BYTES)
def test_what_cannot_be_the_bytes_is_no_data_whatever_its_length(fake: FakeHdfs, kind: str) -> None:
    lie, said = NOT_BYTES[kind]
    fake.put("/a", CONTENT)
    fake.nasty["data-OPEN"] = [lie]
    assert read(fake) == CONTENT
    fake.nasty["data-OPEN"] = [lie] * 4
    with pytest.raises(TemporaryStreamError, match=said):
        read(fake)


def test_json_that_is_no_exception_is_no_data_either(fake: FakeHdfs) -> None:
    fake.put("/a", b"{}")
    fake.nasty["data-OPEN"] = [lambda h: h.reply(200, b"{}")]
    with pytest.raises(StreamError, match="JSON in place of the file's bytes"):
        read(fake)


def test_a_file_replaced_in_mid_read_is_an_error(fake: FakeHdfs) -> None:
    fake.put("/a", CONTENT)
    fake.nasty["data-OPEN"] = [cut(1000)]
    reader = open_hdfs(url(fake, "/a"), QUICK)
    assert len(reader.read(1000)) == 1000
    fake.put("/a", CONTENT[::-1])
    with pytest.raises(StreamError, match="changed while it was read: its inode"):
        reader.read(1000)
    reader.close()


def test_a_file_replaced_by_one_of_the_same_length_is_noticed_at_the_end(fake: FakeHdfs) -> None:
    fake.put("/a", CONTENT)
    reader = open_hdfs(url(fake, "/a"), QUICK)
    left = len(CONTENT)
    while left:
        left -= len(reader.read(left))
    fake.put("/a", CONTENT)
    with pytest.raises(StreamError, match="changed while it was read"):
        reader.read(1)
    reader.close()


def test_a_file_removed_in_mid_read_is_an_error(fake: FakeHdfs) -> None:
    fake.put("/a", CONTENT)
    reader = open_hdfs(url(fake, "/a"), QUICK)
    fake.files.clear()
    with pytest.raises(StreamError, match="it was removed"):
        while reader.read(1 << 20):
            pass
    reader.close()


def test_a_redirect_loop_ends(fake: FakeHdfs) -> None:
    fake.put("/a", CONTENT)
    fake.nasty["OPEN"] = [lambda h: h.reply(307, Location=h.path)] * 50
    with pytest.raises(StreamError, match="redirected 10 times"):
        read(fake)


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
def test_every_kind_of_redirect_is_followed(fake: FakeHdfs, status: int) -> None:
    fake.put("/a", CONTENT)
    fake.nasty["OPEN"] = [lambda h: h.reply(status, Location=f"/data{h.path}")]
    assert read(fake) == CONTENT


@pytest.mark.parametrize("there", ["file:///etc/c4nary", "http://me:c4nary", "http://[c4nary/x", "http://:80/c4nary"])
def test_a_redirect_to_what_is_not_a_url_is_an_error_without_its_text(fake: FakeHdfs, there: str) -> None:
    fake.put("/a", CONTENT)
    fake.nasty["OPEN"] = [lambda h: h.reply(307, Location=there)] * 9
    with pytest.raises(StreamError, match="redirected to an address that is not a URL") as caught:
        read(fake)
    assert "c4nary" not in str(caught.value)
    assert not isinstance(caught.value, TemporaryStreamError)


def test_a_password_in_a_redirect_is_in_no_message(fake: FakeHdfs) -> None:
    fake.put("/a", CONTENT)
    fake.nasty["OPEN"] = [lambda h: h.reply(307, Location="http://me:c4nary@127.0.0.1:1/a")] * 9
    with pytest.raises(TemporaryStreamError, match=r"no answer from 127\.0\.0\.1:1") as caught:
        read(fake)
    assert "c4nary" not in str(caught.value)


def test_a_dead_datanode_is_tried_again(fake: FakeHdfs) -> None:
    fake.put("/a", CONTENT)
    fake.nasty["OPEN"] = [lambda h: h.reply(307, Location="http://127.0.0.1:1/webhdfs/v1/a?op=OPEN")]
    assert read(fake) == CONTENT
    assert "GET_BLOCK_LOCATIONS" in fake.calls


@pytest.mark.parametrize("name", ["StandbyException", "RetriableException", "SafeModeException"])
def test_a_namenode_that_is_not_ready_is_tried_again(fake: FakeHdfs, name: str) -> None:
    fake.put("/a", CONTENT)
    fake.nasty["GETFILESTATUS"] = [remote(f"org.apache.hadoop.ipc.{name}")] * 2
    assert read(fake) == CONTENT


def test_a_standby_only_is_given_up_with_its_reason(fake: FakeHdfs) -> None:
    fake.put("/a", CONTENT)
    fake.nasty["GETFILESTATUS"] = [remote("org.apache.hadoop.ipc.StandbyException", "READ is not supported")] * 9
    with pytest.raises(TemporaryStreamError, match="StandbyException: READ is not supported; failed"):
        read(fake)


def test_of_two_namenodes_the_active_one_answers(fake: FakeHdfs) -> None:
    with webhdfs_server.serve() as standby:
        standby.nasty = {
            op: [remote("org.apache.hadoop.ipc.StandbyException")] * 99 for op in ("GETFILESTATUS", "OPEN")
        }
        fake.put("/a", CONTENT)
        reader = open_hdfs(f"webhdfs://{standby.authority},{fake.authority}/a", QUICK)
        assert reader.read(10) == CONTENT[:10]
        reader.close()
        assert len(standby.calls) == 1


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_busy_server_is_tried_again(fake: FakeHdfs, status: int) -> None:
    fake.put("/a", CONTENT)
    fake.nasty["GETFILESTATUS"] = [lambda h: h.reply(status, b"busy", "text/plain")]
    fake.nasty["data-OPEN"] = [lambda h: h.reply(status, b"busy", "text/plain")]
    assert read(fake) == CONTENT


def test_an_answer_of_no_sense_is_an_error(fake: FakeHdfs) -> None:
    fake.put("/a", CONTENT)
    for body in (b"<html>", b"[]", b'{"FileStatus": {"type": "FILE"}}', b'{"FileStatus": 3}'):
        fake.nasty["GETFILESTATUS"] = [lambda h, body=body: h.reply(200, body)]  # type: ignore[misc]
        with pytest.raises(StreamError, match="not that of WebHDFS"):
            read(fake)


def test_kerberos_is_named(fake: FakeHdfs) -> None:
    fake.nasty["GETFILESTATUS"] = [lambda h: h.reply(401, b"", "text/html", WWW_Authenticate="Negotiate")]
    with pytest.raises(StreamError, match=r"401 Unauthorized; for Kerberos use hdfs://"):
        read(fake)


def test_a_folder_is_no_file(fake: FakeHdfs) -> None:
    fake.put("/d/a", b"1")
    with pytest.raises(StreamError, match="is a directory"):
        read(fake, "/d")
    with pytest.raises(StreamError, match="is a directory"):
        write(fake, b"", "/d")


def test_a_written_file_replaces_the_old_one_and_leaves_nothing_else(fake: FakeHdfs) -> None:
    fake.put("/d/a", b"old")
    write(fake, CONTENT, "/d/a")
    assert fake.files == {"/d/a": CONTENT}


def test_if_absent_is_decided_by_the_rename(fake: FakeHdfs) -> None:
    sink = open_hdfs_sink(url(fake, "/a"), if_absent=True, retry=QUICK)
    sink.write(b"late")
    fake.put("/a", b"first")
    with pytest.raises(AlreadyPublishedError):
        sink.commit()
    sink.discard()
    assert fake.files == {"/a": b"first"}
    with pytest.raises(AlreadyPublishedError):
        open_hdfs_sink(url(fake, "/a"), if_absent=True, retry=QUICK)


FAILURES: dict[str, tuple[str, webhdfs_server.Answer, str]] = {
    "rename answers false": ("RENAME", lambda h: h.reply_json({"boolean": False}), "did not rename"),
    "rename does nothing": ("RENAME", lambda h: h.reply(200), "did not rename"),
    "rename is forbidden": (
        "RENAME",
        remote("org.apache.hadoop.security.AccessControlException", "Permission denied: user=x"),
        "permission denied: user=x",
    ),
    "rename has no source": (
        "RENAME",
        remote("java.io.FileNotFoundException", "gone", 404),
        "the finished file was removed before",
    ),
    "create is forbidden by the DataNode": (
        "data-CREATE",
        remote("org.apache.hadoop.security.AccessControlException", "Permission denied: user=x"),
        "permission denied: user=x",
    ),
    "create has no redirect": ("CREATE", lambda h: h.reply(201), "without a target for the data"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_failed_write_leaves_the_old_file_and_no_other(fake: FakeHdfs, case: str) -> None:
    op, answer, message = FAILURES[case]
    fake.put("/a", b"old")
    fake.nasty[op] = [answer] * 9
    with pytest.raises(StreamError, match=message) as caught:
        write(fake, CONTENT)
    assert fake.files == {"/a": b"old"}
    assert f"webhdfs://{fake.authority}/a" in str(caught.value)


def test_a_file_that_arrives_short_is_not_published(fake: FakeHdfs) -> None:
    def short(handler: Handler) -> None:
        handler.send_response_only(100)
        handler.end_headers()
        handler.fake.put(handler.file, handler.chunks()[:-1])
        handler.reply(201)

    fake.nasty["data-CREATE"] = [short]
    with pytest.raises(TemporaryStreamError, match=f"{len(CONTENT)} bytes were sent, but {len(CONTENT) - 1} arrived"):
        write(fake, CONTENT)
    assert fake.files == {}


def test_a_connection_that_breaks_while_writing_is_an_error(fake: FakeHdfs) -> None:
    def breaking(handler: Handler) -> None:
        handler.send_response_only(100)
        handler.end_headers()
        handler.rfile.read(1000)
        handler.fake.put(handler.file, b"what a DataNode keeps of it")

    fake.nasty["data-CREATE"] = [breaking]
    with pytest.raises(TemporaryStreamError, match="nothing was published"):
        write(fake, os.urandom(20 << 20))
    assert fake.files == {}


def test_a_rename_whose_answer_was_lost_is_no_failure(fake: FakeHdfs) -> None:
    def renamed_but_silent(handler: Handler) -> None:
        target = handler.query["destination"]
        for table in (handler.fake.files, handler.fake.numbers):
            table[target] = table.pop(handler.file)  # type: ignore[attr-defined]

    fake.nasty["RENAME"] = [renamed_but_silent]
    write(fake, CONTENT)
    assert fake.files == {"/a": CONTENT}


def test_a_file_that_is_gone_after_its_rename_is_an_error(fake: FakeHdfs) -> None:
    def renamed_and_lost(handler: Handler) -> None:
        handler.fake.files.pop(handler.file)
        handler.reply(200)

    fake.nasty["RENAME"] = [renamed_and_lost]
    with pytest.raises(GivenUpError, match="no file has this name; failed after 4 attempts"):
        write(fake, CONTENT)
    assert fake.files == {}


def test_a_file_that_another_writer_replaced_was_published(fake: FakeHdfs) -> None:
    def renamed_and_replaced(handler: Handler) -> None:
        handler.fake.files.pop(handler.file)
        handler.fake.put(handler.query["destination"], b"of another")
        handler.reply(200)

    fake.nasty["RENAME"] = [renamed_and_replaced]
    write(fake, CONTENT)
    assert fake.files == {"/a": b"of another"}


def test_discard_deletes_what_was_begun(fake: FakeHdfs) -> None:
    sink = open_hdfs_sink(url(fake, "/a"), retry=QUICK)
    sink.write(b"half")
    sink.discard()
    sink.discard()
    assert fake.files == {}
    with pytest.raises(StreamError, match="has failed already"):
        sink.write(b"more")


def test_patterns(fake: FakeHdfs) -> None:
    for path in ("/d/a.tar", "/d/b.tar", "/d/.hidden.tar", "/d/c.txt"):
        fake.put(path, b"1")
    found = list(expand(url(fake, "/d/[ab]*.tar")))
    assert found == [url(fake, "/d/a.tar"), url(fake, "/d/b.tar")]
    with pytest.raises(MissingInputError):
        list(expand(url(fake, "/d/*.zip")))
    assert list(expand(url(fake, "/d/a.tar"))) == [url(fake, "/d/a.tar")]


def test_names_go_through_as_they_are(fake: FakeHdfs) -> None:
    path = "/d/a b%20c#d?e+é.tar"
    write(fake, CONTENT, path)
    assert fake.files == {path: CONTENT}
    assert read(fake, path) == CONTENT


def test_the_token_is_never_shown(fake: FakeHdfs) -> None:
    message = f"token {CANARY} of http://{fake.authority}/x?delegation={CANARY} was refused"
    for error in ("org.apache.hadoop.security.token.SecretManager$InvalidToken", "java.io.IOException"):
        fake.nasty["GETFILESTATUS"] = [remote(error, message)]
        with pytest.raises(StreamError) as caught:
            read(fake)
        assert CANARY not in str(caught.value) + repr(caught.value) + str(vars(caught.value))
    assert not any("user.name" in call for call in fake.calls)


def test_a_password_goes_to_the_namenode_only(fake: FakeHdfs) -> None:
    fake.put("/a", CONTENT)
    with webhdfs_server.serve() as node:
        node.put("/a", CONTENT)
        fake.nasty["OPEN"] = [lambda h: h.reply(307, Location=f"http://{node.authority}/data{h.path}")]
        reader = open_hdfs(f"webhdfs://me:{CANARY}@{fake.authority}/a", QUICK)
        assert reader.read(10) == CONTENT[:10]
        reader.close()
        assert all("Authorization" in headers for headers in fake.headers)
        assert not any("Authorization" in headers for headers in node.headers)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("webhdfs:///a", "HOST:PORT"),
        ("webhdfs://h:x/a", "HOST:PORT"),
        ("webhdfs://me:secret@example.org/a", "https only"),
        ("webhdfs://me@h/a?delegation=x", "leave out the user"),
        ("webhdfs://h/a/../b", "does not know"),
        ("hdfs://me@h:9000/a", "HADOOP_USER_NAME"),
    ],
)
def test_urls_that_can_not_be(bad: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        open_hdfs(bad, QUICK)
    assert "secret" not in str(caught.value)


def test_every_error_is_one_of_ours_with_a_url(fake: FakeHdfs) -> None:
    for name in ("java.io.IOException", "weird", "org.apache.hadoop.ipc.RpcException"):
        fake.nasty["GETFILESTATUS"] = [remote(name, "line one\n\tat java.Stack(Trace.java:1)")]
        with pytest.raises(TarkitError) as caught:
            read(fake)
        assert "line one" in str(caught.value)
        assert "Trace.java" not in str(caught.value)
        assert str(caught.value).startswith("webhdfs://")


def four_samples(folder: Path) -> str:
    shard = str(folder / "s.tar")
    with TarWriter(shard) as writer:
        for number in range(4):
            writer.write({"__key__": str(number), "txt": b"plain"})
    return shard


def test_a_query_stays_at_the_end_of_the_names_beside_an_output(fake: FakeHdfs, tmp_path: Path) -> None:
    """They were the name of the output itself, as another user: failed samples were gone, and the
    exit code was 3.
    """
    shard, output = four_samples(tmp_path), f"webhdfs://{fake.authority}/out/x.tar?user.name=me"
    counts = process(shard, output=output, command='test "$(cat __key__)" != 2')
    assert (counts.out, counts.failed) == (3, 1)
    assert sorted(fake.files) == ["/out/x.tar", "/out/x.tar.failed.tar"]
    assert counts.failed_output == f"webhdfs://{fake.authority}/out/x.tar.failed.tar?user.name=me"
    (failed,) = read_samples(counts.failed_output)
    assert failed["__key__"] == "2"


def test_an_outdir_may_have_a_query(fake: FakeHdfs, tmp_path: Path) -> None:
    """The shard was written in the place of the folder, and its done record over it."""
    shard, outdir = four_samples(tmp_path), f"webhdfs://{fake.authority}/out?user.name=me"
    process(shard, outdir=outdir, command='test "$(cat __key__)" != 2', index=True)
    names = ["s.idx", "s.tar", "s.tar.done.json", "s.tar.failed.tar"]
    (record,) = (name for name in fake.files if name.startswith("/out/.tarkit-run-"))
    assert sorted(fake.files) == [record, *(f"/out/{name}" for name in names)]
    for inputs in (None, [shard]):
        found = progress_of(outdir, inputs)
        assert (found.done, found.set_aside, found.unfinished) == (["s.tar"], {"s.tar": 1}, False)
    assert process(shard, outdir=outdir, command='test "$(cat __key__)" != 2', index=True).shards_before == 1
    process(outdir=outdir, retry_failed=outdir, command="true", index=True)
    assert sorted(fake.files) == [record, *(f"/out/{name}" for name in names[:3])]
    assert [sample["__key__"] for sample in read_samples(f"webhdfs://{fake.authority}/out/s.tar")] == list("0123")
    assert not progress_of(outdir).lost_samples
