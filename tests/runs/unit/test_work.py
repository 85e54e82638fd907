"""What a run does, as data: arguments and back, fingerprints, and the shards that an earlier
version made.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tarkit.cli.tarproc import tarproc

from tarkit.errors import UsageError
from tarkit.mapping.shellrules import is_simple
from tarkit.runs.work import BYTES, FLAG, INTEGER, SECONDS, TEXT, Option, Variable, Work, options

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8) | st.sampled_from(
    ["--", "-", "--slice", "-p", "$(TARKIT_CPUS)", "$$(X)", "a=b", " "]
)


def values(option: Option) -> st.SearchStrategy[Any]:
    if option.choices:
        return st.sampled_from(option.choices)
    return {
        TEXT: TEXTS,
        FLAG: st.booleans(),
        INTEGER: st.integers(option.least, option.most),
        SECONDS: st.floats(0, exclude_min=True, allow_nan=False, allow_infinity=False),
        BYTES: st.integers(1, 2**53),
    }[option.kind]


def works() -> st.SearchStrategy[Work]:
    given = st.fixed_dictionaries({}, optional={name: values(option) for name, option in options().items()})
    return st.builds(lambda given, inputs: Work(inputs=tuple(inputs), **given), given, st.lists(TEXTS, max_size=3))


@given(works())
def test_arguments_and_back(work: Work) -> None:
    assert Work.from_args(work.to_args()) == work


@settings(max_examples=30)
@given(works())
def test_the_program_reads_the_same(work: Work) -> None:
    """click, by which tarproc reads its arguments, and from_args() agree."""
    with tarproc.make_context("tarproc", work.to_args(), obj=[False]) as context:
        assert Work(**{name: value for name, value in context.params.items() if name != "trial"}) == work


@pytest.mark.parametrize(
    "words",
    [
        ["-p4", "-mq", "a.tar", "-c", "-x", "--", "-b"],
        ["--error-handling=skip", "--working_dir=w", "--silent", "-c", "true", "--errors", "keep"],
        ["a.tar", "-s", "", "--separator=", "-c", "", "--mem", "1.5k", "--timeout", "1e3"],
    ],
)
def test_every_way_to_write_an_option(words: list[str]) -> None:
    with tarproc.make_context("tarproc", list(words), obj=[False]) as context:
        assert Work.from_args(words) == Work(
            **{name: value for name, value in context.params.items() if name != "trial"}
        )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--no-such"], "--no-such"), (["-Z"], "-Z"), (["--timeout"], "--timeout"), (["-p", "x"], "-p 'x'"),
        (["-p", "4097"], "-p 4097"), (["--errors", "never"], "keep, skip"), (["--batch", "0"], "--batch 0"),
        (["--timeout", "0"], "--timeout 0"), (["--timeout", "nan"], "--timeout nan"), (["--mem", "much"], "'much'"),
        (["--quiet=1"], "--quiet"), (["--count", "$(N)"], "--count '$(N)'"), (["-p", "$(N)x"], "-p '$(N)x'"),
    ],
)  # fmt: skip
def test_what_tarproc_does_not_take(words: list[str], expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        Work.from_args(words)
    assert expected in str(caught.value)
    if "$(" not in words[-1]:
        with pytest.raises((click.UsageError, UsageError)):
            Work(**tarproc.make_context("tarproc", list(words), obj=[False]).params)


@pytest.mark.parametrize(
    "wrong", [{"command": 1}, {"shell": None}, {"parallel": "4"}, {"multi": "yes"}, {"timeout": -1}, {"format": "zip"}]
)
def test_values_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"--|-p|-c"):
        Work(**wrong)


def test_what_the_kubelet_fills_in_stays_as_it_is() -> None:
    words = [
        "--slice",
        "4",
        "-p",
        "$(TARKIT_CPUS)",
        "-c",
        "echo $$(X) $(X) $$",
        "--timeout",
        "$(T)",
        "--",
        "$(L)",
    ]
    work = Work.from_args(words)
    assert isinstance(work.parallel, Variable) and work.parallel == 1
    assert dataclasses.replace(work, slice="9").to_args() == ["--slice", "9", *words[2:]]


def test_a_callable_has_no_words_and_no_fingerprint_of_its_own() -> None:
    work = Work(function=lambda sample: sample)
    for wrong in (work.to_args, work.fingerprint):
        with pytest.raises(UsageError, match="not named"):
            wrong()
    one, two = (dataclasses.replace(work, work_id=name).fingerprint() for name in "ab")
    assert one != two != Work(function="m:f").fingerprint()


def test_the_fingerprint_is_of_what_changes_the_output(tmp_path: Path) -> None:
    base = Work(command="true").fingerprint()
    same: dict[str, Any] = {"parallel": 4, "mem": 1 << 20, "timeout": 1.0, "outdir": "o", "slice": "1/2", "quiet": True}
    assert {Work(command="true", **{name: value}).fingerprint() for name, value in same.items()} == {base}
    others: dict[str, Any] = {"count": 1, "fields": "a", "batch": 1, "mtime": 5, "format": "gnu", "on_damage": "skip"}
    assert len({Work(command="true", **{name: value}).fingerprint() for name, value in others.items()} | {base}) == 7
    script = tmp_path / "m.py"
    found = set()
    for text in ("a = 1", "a = 2"):
        script.write_text(text)
        found |= {Work(script=str(script)).fingerprint(), Work(function=f"{script}:f").fingerprint()}
    assert len(found) == 4


def test_one_simple_command_is_done_by_any_rules(tmp_path: Path) -> None:
    for command, same in (("convert a b", True), ("a | b", False), ("a; b", False), ("a && b", False)):
        work = Work(command=command)
        assert (work.fingerprint() == Work(command=command, shell_flags="").fingerprint()) is same
    flags = {Work(command="a b", shell_flags=flags).fingerprint() for flags in (None, "", "-u")}
    assert len(flags) == 2
    assert Work(filter="a b").fingerprint() != Work(command="a b").fingerprint()


SIMPLE = [
    "convert a b",
    "grep -qx 1 sample.cls",
    "x > y 2>&1",
    "A=1 b",
    "cat <<< x",
    "echo 'a|b;c'",
    "a\\;b",
    "exec ls",
]
NOT_SIMPLE = [
    "", "a; b", "a && b", "a || b", "a | b", "a |& b", "a & b", "a\nb", 'echo "$(x)"', "echo `x`", "(a)", "{ a; }",
    "if a; then b; fi", "! a", "eval 'a; b'", ". ./a", "time a", "a <(b)", "f() { a; }", "x=1 eval a", "echo 'a",
    "while a", "[[ a ]]", "a # b", "A=1", "${x}",
]  # fmt: skip


@pytest.mark.parametrize("command", [*SIMPLE, *NOT_SIMPLE])
def test_which_commands_are_certainly_simple(command: str) -> None:
    assert is_simple(command) is (command in SIMPLE)
