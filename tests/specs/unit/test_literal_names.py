"""A name that a listing gave is not a pattern again."""

from __future__ import annotations

import io

import fsspec
import pytest

import tarkit
from tarkit.errors import MissingInputError, StreamError, TemporaryStreamError
from tarkit.samples.read import read_samples
from tarkit.specs import shardspec


def shard(key: str) -> bytes:
    buffer = io.BytesIO()
    with tarkit.TarWriter(buffer, encoder=False) as writer:
        writer.write({"__key__": key, "x": b"1"})
    return buffer.getvalue()


@pytest.fixture
def listing() -> str:
    """A folder in which one name, taken for a pattern, stands for two others."""
    memory = fsspec.filesystem("memory")
    for name, key in (("a{1,2}.tar", "braces"), ("a1.tar", "one"), ("a2.tar", "two"), ("b[1].tar", "bracket")):
        memory.pipe(f"/literal-names/{name}", shard(key))
    return "memory://literal-names/*.tar"


def test_each_shard_of_a_listing_is_read_once(listing: str) -> None:
    keys = ["one", "two", "braces", "bracket"]
    assert [sample["__key__"] for sample in read_samples(listing)] == keys


def test_names_as_they_are(listing: str) -> None:
    url = "memory://literal-names/b[1].tar"
    assert [sample["__key__"] for sample in read_samples(url, literal=True)] == ["bracket"]
    # As with a path, what has just this name comes before what the pattern matches.
    fsspec.filesystem("memory").pipe("/literal-names/b1.tar", shard("other"))
    assert [sample["__key__"] for sample in read_samples(url)] == ["bracket"]
    assert [sample["__key__"] for sample in read_samples("memory://literal-names/b[1-9].tar")] == ["other"]
    with pytest.raises(MissingInputError, match="nothing matches this pattern"):
        list(read_samples("memory://literal-names/b[2].tar"))


@pytest.mark.parametrize("error", [StreamError("403"), TemporaryStreamError("503")])
def test_a_name_that_cannot_be_looked_at_is_a_pattern(
    listing: str, error: StreamError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stat(url: str) -> None:
        raise error

    monkeypatch.setattr(shardspec, "stat", stat)
    url = "memory://literal-names/a[1].tar"
    if isinstance(error, TemporaryStreamError):
        with pytest.raises(TemporaryStreamError):
            list(read_samples(url))
    else:
        assert [sample["__key__"] for sample in read_samples(url)] == ["one"]
