"""A slice of the inputs without the names of all: patterns by arithmetic, lists by offsets."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from braceexpand import UnbalancedBracesError, braceexpand
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from podslices import slice_inputs

import tarkit.specs.inputslice
from tarkit.errors import CompressionError, TarkitError, UsageError
from tarkit.names.braces import Choice, expand_braces, parse_braces
from tarkit.names.outputnames import FAILED_SUFFIX, are_distinct, output_name, plan_outputs
from tarkit.specs.inputslice import plan_slice
from tarkit.specs.shardspec import expand, patterns_of, take_slice

# Patterns

PIECES = st.lists(
    st.sampled_from(
        [
            "{",
            "}",
            ",",
            "a",
            "B",
            "0",
            "07",
            "-",
            "..",
            "\\",
            "/",
            "{0..3}",
            "{a,b}",
            "{03..-1}",
            "{a..e}",
            "{1..9..2}",
            "é",
        ]
    ),
    max_size=8,
).map("".join)


def is_closed_too_early(pattern: str) -> bool:
    """``}{``: the library takes it for balanced, and here it never was."""
    depth, escaped = 0, False
    for character in pattern:
        if escaped or character == "\\":
            escaped = not escaped
            continue
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return True
    return False


@settings(max_examples=400, deadline=None)
@given(PIECES, st.integers(0, 60), st.integers(0, 60))
@example("{a,b{00..11},{x,{1..3}}}-{Z..X}.tar", 3, 40)
@example("{0..3\n}{a{b}c}", 0, 9)
def test_patterns_agree_with_the_library(pattern: str, start: int, stop: int) -> None:
    # Two backslashes: the library takes them apart twice, and bash does not.
    assume("\\\\" not in pattern)
    if "{" not in pattern and "}" not in pattern:
        expected: list[str] | None = [pattern]
    else:
        try:
            expected = None if is_closed_too_early(pattern) else list(islice(braceexpand(pattern), 20_000))
        except UnbalancedBracesError:
            expected = None
    if expected is None:
        with pytest.raises(UsageError, match="not balanced"):
            parse_braces(pattern)
        return
    assume(len(expected) < 20_000)
    assert list(expand_braces(pattern)) == expected
    assert parse_braces(pattern).count == len(expected)
    assert list(items(pattern, start, stop)) == expected[start:stop]


def items(pattern: str, start: int, stop: int) -> Iterator[str]:
    return Choice((parse_braces(pattern),)).items(start, stop)


def test_a_name_from_the_middle_of_very_many() -> None:
    pattern = "s3://b/{0000000000..9999999999}-{000000..999999}.tar"
    assert parse_braces(pattern).count == 10**16
    assert list(items(pattern, 10**15 + 999_999, 10**15 + 1_000_001)) == [
        "s3://b/1000000000-999999.tar",
        "s3://b/1000000001-000000.tar",
    ]
    nested = "{train-{0000000..7999999},val-{000..999}}.tar"
    assert list(items(nested, 7_999_999, 8_000_001)) == ["train-7999999.tar", "val-000.tar"]
    assert list(items(nested, 8_000_999, 9**9)) == ["val-999.tar"]


# Names that surely differ

TAILS = st.lists(
    st.sampled_from(
        ["{0..12}", "{00..12}", "{8..11}", "{-2..3}", "{a,b}", "{a,ab}", "{1,2,12}", "{,x}", "{a,a}", "a", "b", "1",
         "-", ".tar", "{.tar,.failed.tar}", ".failed.tar", "{tar,tgz}", "{x{0..3},y{0..3}}", "{x{0..3},x}",
         "{q{8..12}{0..2},z}"]
    ),
    min_size=1, max_size=4,
).map("".join)  # fmt: skip


@settings(max_examples=600, deadline=None)
@given(st.lists(TAILS, min_size=1, max_size=3))
@example(["x-{0..4}.tar", "y-{0..4}.tar"])
@example(["{0..9}{0..99}"])
@example(["{0..3}", "{2..5}"])
@example(["a{0..12}b", "a{8..11}b"])
@example(["x{0..3}.failed.tar"])
def test_names_that_are_said_to_differ_do(tails: list[str]) -> None:
    if are_distinct(tails):
        names = [name for tail in tails for name in expand_braces(tail)]
        assert len(set(names)) == len(names)
        assert not any(name.endswith(FAILED_SUFFIX) for name in names)


def big(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a few inputs treated as very many."""
    monkeypatch.setattr(tarkit.specs.inputslice, "FEW", 0)


@pytest.mark.parametrize(
    "specs",
    [
        ["s3://b/x-{000000..001281}.tar"],
        ["x-{0..1281}.tar"],
        ["a/x-{9..0..3}.tar"],
        ["x{-12..12}"],
        ["s3://b/train-{0..99}.tar", "s3://c/val-{0..99}.tar", "s3://c/one-{3..3}.tar"],
        ["https://h/p/x-{0..9}.tar"],
    ],
)
def test_what_is_known_to_differ(specs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    patterns = patterns_of(specs)
    assert patterns is not None and are_distinct(specs)
    monkeypatch.setattr(tarkit.specs.inputslice, "expand", None)
    big(monkeypatch)
    everything = [name for spec in specs for name in expand_braces(spec)]
    found = [pair for index in range(7) for pair in plan_slice(specs, "gs://out/d/", index, 7)[0]]
    assert found == [(name, f"gs://out/d/{output_name(name)}") for name in everything]


@pytest.mark.parametrize(
    "specs",
    [
        ["gs://b/{train,val}-{000..999}.tar"],
        ["gs://b/{train-{000..999},val-{00..49}}.tar"],
        ["a/x-{0..9}-{0..99}.tar"],
        ["a/x{10..99}{0..7}"],
        ["a/{0..9}{0..9}{0..99}"],
        ["{0..99}.{tar,tgz}"],
        ["s3://b/train-{0..99}.tar", "s3://c/val-{0..99}.tar", "s3://c/one.tar"],
        ["a/x-{000..499}.tar", "b/x-{500..999}.tar"],
        ["a/x-{0000..4999}.tar", "b/x-{5000..9999}.tar"],
        ["a/{s,t}-{8..11}-{0..4}.tar", "a/{s,t}-{12..14}-{0..4}.tar"],
        ["{a,b}/x-{0..9}.tar"],
        ["a/{0..99}{0..9}"],
        ["x-{0..99}{0..9}.tar"],
        ["{a/x,b/y}-{0..9}.tar"],
        ["x-{0..9}{,.failed}.tar"],
        ["x-{0..9}{,.failed.tar}"],
        ["a/x-{0..9}.tar", "b/x-{9..12}.tar"],
        ["a/{.,..}"],
        ["s3://h{0..9}"],
        ["https://h/{0..9}#x"],
        ["{s3,gs}://b/x.tar"],
        ["{pipe:x,y}"],
        ["a/{x,y}.tar", "in.tar", "a/x.tar"],
    ],
)
def test_what_is_not_known_is_looked_at(specs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    patterns = patterns_of(specs)
    assert patterns is None or outcome(lambda: are_distinct(specs)) is not True
    big(monkeypatch)
    assert outcome(lambda: plan_slice(specs, "out", 1, 3)[0]) == outcome(lambda: whole(specs, "out", 1, 3))


def whole(specs: list[str], folder: str, index: int, w: int) -> list[tuple[str, str]]:
    pairs = list(plan_outputs(expand(specs), folder))
    return [pairs[number] for number in take_slice(len(pairs), index, w)]


def outcome(call: object) -> object:
    """What a call gives, or the error that it raises."""
    try:
        return call()  # type: ignore[operator]
    except TarkitError as error:
        return type(error), str(error)


SPECS = st.lists(
    st.tuples(st.sampled_from(["", "a/", "s3://b/", "s3://b/{c,d}/", "out/", "{", "http://h/p/"]), TAILS).map("".join),
    min_size=1, max_size=3,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(SPECS, st.integers(1, 9), st.data())
def test_a_slice_is_that_of_the_whole(specs: list[str], w: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, w - 1))
    with pytest.MonkeyPatch.context() as patch:
        big(patch)
        found = outcome(lambda: plan_slice(specs, "out", index, w)[0])
        expected = outcome(lambda: whole(specs, "out", index, w))
        if isinstance(expected, list) or isinstance(found, list):
            assert found == expected
        else:
            # Of two things that are wrong, another one may be met first.
            assert isinstance(found, tuple) and found[0] is expected[0]  # type: ignore[index]


def test_outputs_that_would_replace_inputs_of_other_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    big(monkeypatch)
    specs = [f"{tmp_path}/a-{{0..9}}.tar", f"{tmp_path}/out/b-{{0..9}}.tar"]
    (tmp_path / "out").mkdir()
    for index in range(4):
        with pytest.raises(UsageError, match="replaced by its own output"):
            plan_slice(specs, str(tmp_path / "out"), index, 4)


def test_a_file_of_that_very_name_still_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    big(monkeypatch)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x{0..9}.tar").write_bytes(b"")
    assert plan_slice(["x{0..9}.tar"], "out", 0, 1)[0] == [("x{0..9}.tar", "out/x{0..9}.tar")]


@pytest.mark.parametrize("spec", ["{0..2000}.tar", "p{0..2000}", "@{0..2000}", "pipe:{0..2000}", "p{ip,x}e:{0..2000}"])
def test_commands_hide_in_no_large_pattern(spec: str) -> None:
    patterns = patterns_of([spec])
    hidden = not spec.startswith(("{", "p{0"))
    assert (patterns is None) == hidden


# Lists


def test_lists_are_read_compressed(tmp_path: Path) -> None:
    text = b"# shards\ns3://b/x-{0..2}.tar\n\n/y.tar\n"
    names = ["s3://b/x-0.tar", "s3://b/x-1.tar", "s3://b/x-2.tar", "/y.tar"]
    for name, content in (("l.gz", gzip.compress(text)), ("any", bz2.compress(text)), ("plain", text)):
        (tmp_path / name).write_bytes(content)
        assert list(expand(f"@{tmp_path}/{name}")) == names
        assert slice_inputs([f"@{tmp_path}/{name}"], 1, 2) == names[2:]
    (tmp_path / "l.gz").write_bytes(gzip.compress(text)[:-6])
    with pytest.raises(CompressionError):
        list(expand(f"@{tmp_path}/l.gz"))
