"""A name that a listing gave is not a pattern again."""

from __future__ import annotations

import io

import fsspec
import pytest

import tarkit
from tarkit.errors import MissingInputError
from tarkit.samples.read import read_samples


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
    with pytest.raises(MissingInputError):
        list(read_samples(url))
