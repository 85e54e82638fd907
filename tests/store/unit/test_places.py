"""The registry of places: each scheme has a module, and what it cannot do is refused in one
sentence.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from tarkit.errors import UsageError
from tarkit.names.url import base_name, is_url, join, local_path, scheme_of, split_query
from tarkit.store import local
from tarkit.store.entries import entries, glob, identify, remove, stat
from tarkit.store.publish import check_target, open_publish
from tarkit.store.read import open_read, read_range
from tarkit.store.registry import ANY_OTHER, FUNCTIONS, PLACES, function_of, module_of, offered


def url_of(scheme: str) -> str:
    return {"": "/a/b", "pipe": "pipe:true"}.get(scheme, f"{scheme}://host/a/b")


@pytest.mark.parametrize("scheme", PLACES)
def test_a_place_has_the_functions_that_the_registry_knows(scheme: str) -> None:
    place = module_of(url_of(scheme))
    assert place.__name__ == f"tarkit.store.{PLACES[scheme]}"
    assert offered(url_of(scheme), "open_read") is not None
    for name in FUNCTIONS:
        function = offered(url_of(scheme), name)
        if function is None:
            continue
        theirs = list(inspect.signature(function).parameters)
        ours = list(inspect.signature(getattr(local, name)).parameters)
        assert theirs[: len(ours)] == ours


def test_chains_and_unknown_schemes_are_for_fsspec() -> None:
    for url in ("simplecache::s3://b/k", "zip::hdfs://h/a.zip", "memory://a", "sftp://h/a"):
        assert module_of(url).__name__ == f"tarkit.store.{ANY_OTHER}"


@pytest.mark.parametrize(
    ("url", "function", "words"),
    [
        ("http://h/a", "open_sink", "http:// cannot be written to"),
        ("https://h/a/", "entries", "https:// cannot be listed"),
        ("http://h/a", "remove", "http:// cannot be removed"),
        ("-", "stat", "a stream cannot be looked up"),
        ("pipe:cat secret", "identify", "a stream cannot be looked up"),
        ("-", "read_range", "a stream cannot be read in parts"),
    ],
)
def test_what_a_place_cannot_do_is_refused(url: str, function: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        function_of(url, function)
    assert "secret" not in str(caught.value)


def test_every_door_refuses() -> None:
    for refused in (
        lambda: open_publish("http://h/a"),
        lambda: check_target("http://h/a"),
        lambda: remove("http://h/a"),
        lambda: glob("http://h/*"),
        lambda: stat("-"),
        lambda: identify("pipe:cat a"),
        lambda: list(entries("-")),
        lambda: read_range("-", 0, 1, size=2),
    ):
        with pytest.raises(UsageError, match=r"cannot be .*; a path, s3://, gs:// and hdfs:// can"):
            refused()


def test_files_by_url(tmp_path: Path) -> None:
    for name in ("a.tar", "b.tar", "50%25.tar"):
        (tmp_path / name).write_bytes(name.encode())
    root = tmp_path.as_uri()
    assert glob(f"{root}/*.tar") == [f"{root}/50%25.tar", f"{root}/a.tar", f"{root}/b.tar"]
    for url in glob(f"{root}/*.tar"):
        with open_read(url) as stream:
            assert stream.read(99) == url.rpartition("/")[2].encode()
    assert read_range(f"{root}/a.tar", 2, 4, size=5) == b"ta"


def test_what_a_url_is() -> None:
    table = {
        "s3://b/k": "s3", "S3A://b": "s3a", "simplecache::s3://b/k": "s3", "a::b::file:///x": "file",
        "pipe:s3://": "pipe",
        "/s3://b": "", "-": "", "c:/x": "", "a b://c": "", "s3:/b": "", "x::y": "",
    }  # fmt: skip
    assert {url: scheme_of(url) for url in table} == table
    assert [url for url in table if is_url(url)] == ["s3://b/k", "S3A://b", "simplecache::s3://b/k", "a::b::file:///x"]
    assert [local_path(url) for url in ("a b://c", "file:///x", "LOCAL:///x", "a::file:///x", "s3://b")] == [
        "a b://c", "/x", "/x", None, None,
    ]  # fmt: skip


def test_parts_of_a_url() -> None:
    table = {
        "http://h/a?b#c": ("http://h/a", "?b#c"),
        "http://h/a#c?b": ("http://h/a", "#c?b"),
        "webhdfs://h/a?user.name=me": ("webhdfs://h/a", "?user.name=me"),
        "webhdfs://h/a?b": ("webhdfs://h/a?b", ""),
        "s3://b/k?x#y": ("s3://b/k?x#y", ""),
        "/a?b": ("/a?b", ""),
    }
    assert {url: split_query(url) for url in table} == table
    assert join("webhdfs://h/d/?doas=me", "a") == "webhdfs://h/d/a?doas=me"
    assert (join("s3://b/d/", "a/b"), join("/d", "a")) == ("s3://b/d/a/b", "/d/a")
    assert (join("file:///d%20d/", "a"), join("file:///d%20d/", "a%20b")) == ("file:///d%20d/a", "/d d/a%20b")
    names = {"http://h/d/a.tar?x=1": "a.tar", "s3://b/d/a?b": "a?b", "s3://b": "", "/d/a/": "a", "gs://b/d/": "d"}
    assert {url: base_name(url) for url in names} == names
