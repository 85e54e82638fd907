"""Keys and fields of names, against the readers themselves where they are installed."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import pytest

from tarkit.errors import UsageError
from tarkit.samples.sample import first_dot, last_dot, skip_reason
from tarkit.steps.explain import NameReading, explain

NAMES = [
    "a.jpg", "images/a.b.c.JPG", "v1.2/a.jpg", "v1.2/a", "./a.jpg", "../../x.y/a.jpg", "a//b.jpg", "README",
    "a.", "images/a.", "a..jpg", ".jpg", ".hidden.jpg", "images/.a.jpg", "./.a.jpg", "v1.2/.a.jpg",
    "images/...", "A.JSON", "__a.jpg", "__meta__", "__meta__.json", "__meta__/x.json", "__a.b__", "__",
    "images/__meta__/x.json", "images/__meta__", "._a.jpg", "images/._a.jpg", "__MACOSX/a.jpg", "a.__x__",
    "a b.jpg", "a.b\nc", "a\nb.c", "x.y\nz/b.c", "\udcffa.jpg", "images/__x.jpg",
]  # fmt: skip


def reading(name: str, reader: str, rule: str = "first-dot") -> NameReading:
    return next(each for each in explain(name, rule) if each.reader == reader)


def archive_of(name: str) -> io.BytesIO:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as archive:
        header = tarfile.TarInfo(name)
        header.size = 1
        archive.addfile(header, io.BytesIO(b"x"))
    out.seek(0)
    return out


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("reader", "rule"), [("tarkit first-dot", first_dot), ("tarkit last-dot", last_dot)])
def test_tarkit(name: str, reader: str, rule: Any) -> None:
    found, why = reading(name, reader), skip_reason(name, rule)
    assert (found.key, found.field) == ((None, None) if why else rule(name))
    assert (found.skipped or "").partition(":")[0] == (why or "")


def test_a_rule_of_ones_own() -> None:
    found = explain("shot_left.png", "(.*)_(.*)")
    assert [each.reader for each in found] == [
        "tarkit first-dot", "tarkit last-dot", "tarkit (.*)_(.*)", "WebDataset", "HF datasets", "DALI",
    ]  # fmt: skip
    assert (found[2].key, found[2].field, found[2].skipped) == ("shot", "left.png", None)
    assert reading("left.png", "tarkit (.*)_(.*)", "(.*)_(.*)").skipped == (
        "no-extension: the rule finds no key and field"
    )
    assert [each.reader for each in explain("a.b", "last-dot")] == [each.reader for each in explain("a.b")]
    with pytest.raises(UsageError, match="must have two groups"):
        explain("a.b", "(.*)")


def test_a_folder_is_skipped_by_all() -> None:
    assert {each.skipped for each in explain("images/")} == {"the name of a folder"}


@pytest.mark.parametrize("name", NAMES)
def test_webdataset_itself(name: str) -> None:
    tariterators = pytest.importorskip("webdataset.tariterators")
    files = list(tariterators.tar_file_iterator(archive_of(name)))
    samples = list(tariterators.group_by_keys({"__url__": "x", **each} for each in files))
    found = reading(name, "WebDataset")
    if found.skipped:
        assert samples == []
    else:
        assert [(each["__key__"], *(each.keys() - {"__key__", "__url__"})) for each in samples] == [
            (found.key, found.field)
        ]


def test_webdataset_refuses_fields_that_each_sample_has() -> None:
    tariterators = pytest.importorskip("webdataset.tariterators")
    files = [{"__url__": "x", **each} for each in tariterators.tar_file_iterator(archive_of("a.__KEY__"))]
    with pytest.raises(ValueError, match="duplicate file name"):
        list(tariterators.group_by_keys(files))
    assert reading("a.__KEY__", "WebDataset").skipped == "an error: each sample has __key__ already"


def test_hugging_face_itself() -> None:
    utils = pytest.importorskip("datasets.utils.file_utils", reason="datasets IS NOT INSTALLED, ITS RULE IS NOT RUN")
    from datasets.packaged_modules.webdataset.webdataset import base_plus_ext

    for name in NAMES:
        keys = [base_plus_ext(path) for path, _ in utils.ArchiveIterable.from_buf(archive_of(name))]
        found = reading(name, "HF datasets")
        assert [key for key in keys if key[0] is not None] == ([] if found.skipped else [(found.key, found.field)])


@pytest.mark.parametrize(
    ("name", "key", "field"),
    [
        ("images/a.b.JPG", "images/a", "b.JPG"),
        # wds2idx takes the whole name as field, and all but its last character as key.
        ("README", "READM", "README"),
        ("v1.2/a", "v1.2/", None),
        ("images/.a.jpg", None, None),
        (".a.jpg", None, None),
        ("__meta__/x.json", "__meta__/x", "json"),
        ("a.", "a", ""),
    ],
)
def test_dali(name: str, key: str | None, field: str | None) -> None:
    found = reading(name, "DALI")
    assert (found.key, found.field) == ((key, field) if field is not None else (None, None))
    assert bool(found.skipped) == (field is None)
