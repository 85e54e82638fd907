"""Shard specs, numbering and slices."""

from __future__ import annotations

import functools
import io
import os
import sys
import time
import types
from itertools import islice
from pathlib import Path

import pytest
from braceexpand import braceexpand
from hypothesis import given
from hypothesis import strategies as st
from times import fast

import tarkit
from tarkit.errors import MissingInputError, StreamError, TemporaryStreamError, UsageError
from tarkit.names.braces import expand_braces
from tarkit.names.outputnames import output_name, shard_name
from tarkit.specs.inputslice import parse_slice, plan_slice
from tarkit.specs.shardspec import expand, fixed_names, take_slice
from tarkit.store.objects.filesystem import ask


def all_of(spec: object, **options: bool) -> list[str]:
    return list(expand(spec, **options))  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("b-1.tar", "b-0.tar", "c.tar", "sub/d.tar"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_plain_names_pass_as_they_are(folder: Path) -> None:
    names = ["c.tar", "no/such.tar", "s3://bucket/x.tar", "pipe:curl -s http://h/{1..2} | zcat", "-"]
    assert all_of(names) == names
    assert all_of(folder / "c.tar") == [str(folder / "c.tar")]


def test_braces(folder: Path) -> None:
    assert all_of("s3://b/t-{0008..0011}.tgz") == [f"s3://b/t-00{n}.tgz" for n in ("08", "09", "10", "11")]
    assert all_of("{train,val}-{0..1}.tar") == ["train-0.tar", "train-1.tar", "val-0.tar", "val-1.tar"]
    assert all_of(r"a\{1\}{x,y}") == ["a{1}x", "a{1}y"]
    assert all_of("http://h/{a,b}.tar?q=1") == ["http://h/a.tar?q=1", "http://h/b.tar?q=1"]


@pytest.mark.parametrize(
    "pattern",
    [
        "{0..12}",
        "{05..-3}",
        "x{-01..3}y",
        "{3..1}{a,b{1..2}}",
        "{a..e..2}",
        "{0..10..5}z",
        "{7..7}",
        "p{q}r",
        "{,x}{1..2}",
    ],
)
def test_braces_agree_with_the_library(pattern: str) -> None:
    assert all_of(pattern) == list(braceexpand(pattern))


def test_huge_ranges_begin_at_once() -> None:
    started = time.process_time()
    urls = expand_braces("s3://b/{0000000000..9999999999}-{000000..999999}.tar")
    assert list(islice(urls, 2)) == ["s3://b/0000000000-000000.tar", "s3://b/0000000000-000001.tar"]
    assert next(expand("x-{0..9999999}.tar")) == "x-0.tar"
    assert time.process_time() - started < 10


@pytest.mark.parametrize("spec", ["x-{0..9999999999}.tar", "{0..9}" * 60, f"x-{{0..{10**29}}}"])
def test_a_pattern_of_more_names_than_can_be_held_is_refused_at_once(spec: str, folder: Path) -> None:
    (folder / "list").write_text(f"{spec}\n")
    for each in (spec, "@list"):
        with pytest.raises(UsageError, match="stands for more than 10000000 names; check the numbers"):
            next(expand(each))
    assert fixed_names(spec) is not None, "a slice of it may be no more than any other"
    with pytest.raises(UsageError, match="slice 1/7 has more than 10000000 inputs"):
        plan_slice(["s3://b/x-{0..9999999999}.tar"], "out", 1, 7)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("{" * 4_000 + "a" + "}" * 4_000, "more than 100 braces"),
        ("{" * 50_000, "more than 100 braces"),
        ("{a,b" * 101 + "}" * 101, "more than 100 braces"),
        ("{a}" * 20_000, "more than 100 braces"),
        ("{0..0}" * 101, "more than 100 braces"),
        ("{{a,b}c" * 51 + "}" * 51, "more than 100 braces"),
        ("{0..%s}" % ("9" * 5_000), "a number in braces has more than 30 digits"),
        ("{a..z..%s}" % ("9" * 31), "a number in braces has more than 30 digits"),
    ],
)  # fmt: skip
def test_more_braces_than_a_name_has_are_refused_at_once(spec: str, said: str) -> None:
    """They were a RecursionError, or took a minute."""
    started = time.process_time()
    with pytest.raises(UsageError, match=f"{said}; name the shards in an @list"):
        next(expand(spec))
    with pytest.raises(UsageError, match=said):
        fixed_names(spec)
    assert time.process_time() - started < 10


def test_as_many_braces_as_are_allowed() -> None:
    spec = "{a,b" * 49 + "}" * 49
    assert len(list(expand(spec))) == 50
    assert next(expand("{0..0}" * 100)) == "0" * 100


@pytest.mark.parametrize("pattern", ["a{1..3.tar", "a}b{1,2}", "a}b{", "{1{2,3}"])
def test_unbalanced_braces(pattern: str, folder: Path) -> None:
    with pytest.raises(UsageError, match="not balanced"):
        all_of(pattern)
    (folder / pattern).write_bytes(b"")
    assert all_of(pattern) == [pattern]


def test_a_file_of_that_very_name_wins(folder: Path) -> None:
    for name in ("x{1,2}.tar", "y[1].tar"):
        (folder / name).write_bytes(b"")
        assert all_of(name) == [name]


def test_local_globs_come_sorted(folder: Path) -> None:
    assert all_of("b-*.tar") == ["b-0.tar", "b-1.tar"]
    assert all_of("b-[1-9].tar") == ["b-1.tar"]
    assert all_of("?.tar") == ["c.tar"]
    assert all_of("**/d.tar") == ["sub/d.tar"]
    assert all_of("{b-*,c}.tar") == ["b-0.tar", "b-1.tar", "c.tar"]
    with pytest.raises(MissingInputError) as caught:
        all_of("nothing-*.tar")
    assert str(caught.value) == "nothing-*.tar: nothing matches this pattern"


def test_a_name_from_braces_may_hold_glob_characters(folder: Path) -> None:
    (folder / "z[1].tar").write_bytes(b"")
    assert all_of("{z[1],c}.tar") == ["z[1].tar", "c.tar"]


def test_remote_globs_keep_the_protocol(folder: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    for name in ("/globs/t-1.tar", "/globs/t-0.tar", "/globs/u.tar"):
        memory.pipe(name, b"")
    assert all_of("memory://globs/t-*.tar") == ["memory://globs/t-0.tar", "memory://globs/t-1.tar"]
    assert all_of("memory:///globs/t-{0,1}*.tar") == ["memory:///globs/t-0.tar", "memory:///globs/t-1.tar"]
    assert all_of(f"file://{folder}/b-?.tar") == [f"file://{folder}/b-0.tar", f"file://{folder}/b-1.tar"]
    with pytest.raises(MissingInputError):
        all_of("memory://globs/none-*.tar")
    with fsspec.open("memory://globs/t-0.tar") as stream:
        assert stream.read() == b""


def fake_system(monkeypatch: pytest.MonkeyPatch, stripped: str, outcome: list[str] | Exception) -> None:
    """A file system as fsspec gives it, for hosts that no test can reach."""

    def glob(pattern: str) -> list[str]:
        assert pattern == stripped
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    system = types.SimpleNamespace(glob=glob, unstrip_protocol=lambda name: f"far://{name}")
    monkeypatch.setattr("tarkit.store.objects.place.filesystem", lambda url, name: (system, stripped))
    monkeypatch.setattr("tarkit.store.objects.place.ask", functools.partial(ask, retry=fast()))


def test_remote_globs_keep_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_system(monkeypatch, "/d/*.tar", ["/d/b.tar", "/d/a.tar"])
    assert all_of("ftp://[::1]:8021/d/*.tar") == ["ftp://[::1]:8021/d/a.tar", "ftp://[::1]:8021/d/b.tar"]
    fake_system(monkeypatch, "elsewhere/*", ["elsewhere/x"])
    assert all_of("far://d/*") == ["far://elsewhere/x"]


@pytest.mark.parametrize(
    ("outcome", "error", "words"),
    [
        (NotImplementedError(), UsageError, "cannot be listed"),
        (ValueError("** is not a folder"), UsageError, r"'s3://b/\*' is not a valid pattern: \*\* is not a folder"),
        (TimeoutError("no answer"), TemporaryStreamError, "no answer"),
        (FileNotFoundError(), MissingInputError, "nothing matches"),
        (PermissionError("denied"), StreamError, "denied"),
    ],
)
def test_listings_that_fail(
    monkeypatch: pytest.MonkeyPatch, outcome: Exception, error: type[Exception], words: str
) -> None:
    fake_system(monkeypatch, "b/*", outcome)
    with pytest.raises(error, match=words):
        all_of("s3://b/*")


def test_a_pattern_that_a_store_does_not_take() -> None:
    with pytest.raises(UsageError, match="is not a valid pattern"):
        all_of("memory://b/a**b.tar")


def test_an_unknown_protocol() -> None:
    with pytest.raises(UsageError, match="nosuch"):
        all_of("nosuch://b/*.tar")


def test_http_can_not_be_listed() -> None:
    for pattern in ("http://h/a-*.tar", "https://h/a-[0-9].tar"):
        with pytest.raises(UsageError, match="cannot be listed"):
            all_of(pattern)
    for literal in ("http://h/a.tar?token=a*b[1]", "http://[::1]:8000/a.tar", "https://u@[fe80::1]/a.tar"):
        assert all_of(literal) == [literal]


def test_pipes_only_where_they_are_allowed(folder: Path) -> None:
    assert all_of("pipe:cat *.tar") == ["pipe:cat *.tar"]
    with pytest.raises(UsageError, match="command cannot be used here"):
        all_of("pipe:cat a.tar", allow_pipe=False)
    (folder / "list.txt").write_text("pipe:cat a.tar --token=secret\n")
    with pytest.raises(UsageError, match="names a command") as caught:
        all_of("@list.txt")
    assert "secret" not in str(caught.value)
    assert all_of("@list.txt", allow_pipe_in_lists=True) == ["pipe:cat a.tar --token=secret"]


@pytest.mark.parametrize("spec", ["{pipe:id,x}", "{pip,x}e:id", "{-,x}", "{@list,x}", "{,}"])
def test_braces_hide_no_command(spec: str, folder: Path) -> None:
    (folder / "list.txt").write_text(spec)
    for given_as in (spec, "@list.txt"):
        with pytest.raises(UsageError, match="braces may only stand for names of shards"):
            all_of(given_as)


def test_globs_match_no_command(folder: Path) -> None:
    for name in ("pipe:id", "@list", "-"):
        (folder / name).write_bytes(b"")
    assert all_of("*[td-]") == ["./-", "./@list", "./pipe:id"]


def test_lists(folder: Path) -> None:
    (folder / "sub/list.txt").write_bytes(
        b"\xef\xbb\xbf# shards\r\n\r\n c.tar \r\nb-*.tar\ns3://b/{1..2}.tar\n/abs.tar"
    )
    expected = ["c.tar", "b-0.tar", "b-1.tar", "s3://b/1.tar", "s3://b/2.tar", "/abs.tar"]
    assert all_of("@sub/list.txt") == expected
    assert all_of(["@sub/list.txt", "x.tar"]) == [*expected, "x.tar"]


def test_lists_keep_names_that_are_not_utf8(folder: Path) -> None:
    (folder / "list.txt").write_bytes(b"caf\xe9.tar\n")
    assert [os.fsencode(name) for name in all_of("@list.txt")] == [b"caf\xe9.tar"]


@pytest.mark.parametrize(("content", "shown"), [(b"a.tar\0b.tar\0", "'a.tar'"), ("a.tar\n".encode("utf-16-le"), "'a'")])
def test_a_list_with_nul_bytes_is_refused_by_name(folder: Path, content: bytes, shown: str) -> None:
    """As find -print0 and programs of Windows write them.

    It was a ValueError.
    """
    (folder / "list").write_bytes(content)
    with pytest.raises(UsageError, match=rf"/list' has a NUL byte behind {shown}; .* \(find -print, not -print0\)$"):
        list(expand(f"@{folder}/list"))
    for spec in ("a\0b.tar", "@a\0b", "{a,b}\0.tar", "s3://b/a\0.tar"):
        with pytest.raises(UsageError, match="name has a NUL byte behind"):
            list(expand(spec))


def test_lists_do_not_nest(folder: Path) -> None:
    (folder / "list.txt").write_text("@other.txt\n")
    with pytest.raises(UsageError, match="do not nest"):
        all_of("@list.txt")


def test_lists_that_are_missing_or_empty(folder: Path) -> None:
    (folder / "empty.txt").write_text("# nothing\n")
    for name, error in (("@none.txt", MissingInputError), ("@empty.txt", MissingInputError), ("@sub", StreamError)):
        with pytest.raises(error):
            all_of(name)
    for name in ("@", "@pipe:cat x"):
        with pytest.raises(UsageError):
            all_of(name)


def test_a_list_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a.tar\n#x\nb-{0..1}.tar\n")))
    assert all_of("@-") == ["a.tar", "b-0.tar", "b-1.tar"]


@pytest.mark.parametrize("specs", [["-", "-"], ["@-", "-"], ["-", "@-"]])
def test_standard_input_is_named_once(specs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a.tar\n")))
    with pytest.raises(UsageError, match="named twice"):
        all_of(specs)


def test_a_list_at_a_url_names_its_neighbours() -> None:
    pytest.importorskip("tarkit.store.read", reason="tarkit.store.read opens lists at URLs")
    import fsspec

    fsspec.filesystem("memory").pipe("/lists/l.txt", b"x-{0..1}.tar\n/abs.tar\ns3://b/y.tar\n")
    assert all_of("@memory://lists/l.txt") == [
        "memory://lists/x-0.tar",
        "memory://lists/x-1.tar",
        "/abs.tar",
        "s3://b/y.tar",
    ]


def test_names_must_be_text() -> None:
    with pytest.raises(UsageError, match="is empty"):
        all_of("")
    with open(os.devnull, "rb") as file:
        for given in (file, [file]):
            message = "^a shard is named by text; got BufferedReader; give the name of the file, and not the open file$"
            for read in (expand, tarkit.read_samples, tarkit.process):
                with pytest.raises(UsageError, match=message):
                    list(read(given))
    for given in (None, 3, [None]):
        with pytest.raises(UsageError, match=r"^a shard is named by text; got (NoneType|int)$"):
            list(expand(given))
    with pytest.raises(UsageError, match="named by text"):
        all_of([_BytesPath()])


class _BytesPath(os.PathLike):  # type: ignore[type-arg]
    def __fspath__(self) -> bytes:
        return b"a"


def test_shard_names() -> None:
    assert shard_name("out-%06d.tar", 7) == "out-000007.tar"
    assert shard_name("100%%-%d.tar", 12) == "100%-12.tar"
    for pattern in ("out.tar", "out-{}.tar", "%d-%d.tar", "%s.tar", "s3://b/a%20b-%06d.tar", "%d%", "%-3d"):
        with pytest.raises(UsageError):
            shard_name(pattern, 0)
    with pytest.raises(UsageError, match="numbered from 0"):
        shard_name("%d", -1)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("a/b/c.tar", "c.tar"),
        ("what?.tar", "what?.tar"),
        ("https://h/p/c.tar?sig=a/b#x", "c.tar"),
        ("https://h/c.tar#frag", "c.tar"),
        ("s3://bucket/p/c#1.tar?versionId=3", "c#1.tar"),
        ("s3://bucket/p/a%20b.tar", "a%20b.tar"),
        ("file:///p/a%20b.tar", "a b.tar"),
        ("file:///p/..%2Fc.tar", "c.tar"),
    ],
)
def test_output_names(url: str, name: str) -> None:
    assert output_name(url) == name


@pytest.mark.parametrize("url", ["-", "pipe:cat a/b.tar", "a/b/", "..", "https://host", "s3://bucket/?x=1", ""])
def test_what_has_no_output_name(url: str) -> None:
    with pytest.raises(UsageError, match="no file name"):
        output_name(url)


def test_slices_as_text() -> None:
    assert parse_slice("0/4") == (0, 4)
    assert parse_slice("3/4") == (3, 4)
    for text in ("4/4", "0/0", "-1/4", "1", "a/b", "1/2/3", "1 /2", "", "1/²"):
        with pytest.raises(UsageError):
            parse_slice(text)


@given(st.integers(0, 10_000), st.integers(1, 300))
def test_slices_are_disjoint_complete_and_balanced(n: int, w: int) -> None:
    slices = [take_slice(n, i, w) for i in range(w)]
    assert [number for part in slices for number in part] == list(range(n))
    assert max(map(len, slices)) - min(map(len, slices)) <= 1


@pytest.mark.parametrize(("n", "i", "w"), [(-1, 0, 1), (5, 2, 2), (5, -1, 2), (5, 0, 0)])
def test_slices_that_do_not_exist(n: int, i: int, w: int) -> None:
    with pytest.raises(UsageError):
        take_slice(n, i, w)


@pytest.mark.parametrize("bad", ["s3://user:secret@b/{1", "https://u:secret@h/*.tar"])
def test_errors_show_no_secrets(bad: str) -> None:
    with pytest.raises(UsageError) as caught:
        all_of(bad)
    assert "secret" not in str(caught.value)
