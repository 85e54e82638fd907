"""What a program says to a user who is lost: which help to ask for, which name was meant, what to
install.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any

import click
import pytest
from programs import commands
from setupcfg import CONFIG, ROOT
from tarkit.cli import kubetpl, tarkit
from tarkit.cli.shared.sections import HEADINGS, VerbGroup, sections

from tarkit.extras import PACKAGES, MissingExtraError
from tarkit.k8s.settings import GENERATORS

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("command", "place"),
    [
        ("tarproc --no-such", "tarproc"),
        ("tarkit --no-such", "tarkit"),
        ("tarkit split --no-such", "tarkit split"),
        ("tarkit split", "tarkit split"),
        ("kubetpl status --no-such", "kubetpl status"),
        ("kubetpl indexed --slices", "kubetpl indexed"),
        ("kubetpl --no-such", "kubetpl"),
        ("kubetpl -n x job -c", "kubetpl"),
        ("tarproc a.tar --mem", "tarproc"),
    ],
)
def test_a_usage_error_names_the_help_of_its_own_verb(command: str, place: str, run: Run) -> None:
    result = run(*command.split())
    assert (result.code, result.stdout) == (2, b"")
    assert result.stderr.startswith(f"{place.split(maxsplit=1)[0]}: ")
    assert result.stderr.endswith(f" (try '{place} --help')\n")


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("tarkit splitt", "did you mean split?"),
        ("tarkit lst", "did you mean ls?"),
        ("kubetpl statu", "did you mean status?"),
        ("kubetpl indexd", "did you mean indexed?"),
        # In the words of this release of click.
        ("tarkit split --outptu x", "--output"),
    ],
)
def test_a_name_that_is_misspelt(command: str, meant: str, run: Run) -> None:
    result = run(*command.split())
    assert result.code == 2
    assert meant in result.stderr


def test_a_verb_like_no_other(run: Run) -> None:
    result = run("tarkit", "qqqq")
    assert result.code == 2
    assert "no command 'qqqq'; commands are audit, cat, " in result.stderr


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s4://b/a.tar", "unknown scheme 's4'; did you mean s3? a scheme is added by the Python package that"),
        ("simplecache::htp://h/a.tar", "unknown scheme 'htp'; did you mean http?"),
        ("webhfds://h/a.tar", "unknown scheme 'webhfds'; did you mean webhdfs?"),
        ("qqqqqq://h/a.tar", "unknown scheme 'qqqqqq'; a scheme is added by"),
    ],
)
def test_a_scheme_that_is_unknown(url: str, said: str, run: Run) -> None:
    result = run("tarkit", "show", url)
    assert result.code == 2
    assert said in result.stderr
    assert len(result.stderr) < 250


LONG = [
    "tarproc", "kubetpl job", "kubetpl pod", "kubetpl jobs", "kubetpl indexed", "kubetpl shuffle", "kubetpl sort",
    "kubetpl join", "kubetpl reduce", "kubetpl dedup", "kubetpl train", "tarkit serve", "tarkit mix", "tarkit pick",
    "tarkit sample", "tarkit split", "tarkit convert", "tarkit show", "tarkit create", "tarkit join", "tarkit reduce",
    "tarkit shuffle", "tarkit sort",
]  # fmt: skip


@pytest.mark.parametrize(("name", "context"), list(commands()), ids=lambda each: str(each).replace(" ", "-")[:30])
def test_long_help_is_in_sections_and_short_help_is_not(name: str, context: click.Context) -> None:
    found = sections(context.command, context)
    assert (len(found) > 1) == (name in LONG)
    listed = context.get_help()
    for heading, records in found:
        assert f"\n{heading}:\n" in listed
        assert all(names in listed for names, _ in records)
    options = [each for each in context.command.get_params(context) if isinstance(each, click.Option)]
    assert sum(len(records) for _, records in found) == len(options)
    if name in LONG:
        assert [names for names, _ in dict(found)["Other"]] == ["-v, --verbose", "--version", "-h, --help"]


@pytest.mark.parametrize(("program", "verbs"), [("tarkit", tarkit.VERBS), ("kubetpl", kubetpl.VERBS)])
def test_verbs_are_listed_under_headings_with_whole_sentences(
    program: str, verbs: dict[str, dict[str, str]], run: Run
) -> None:
    sections = dict(re.findall(r"(?m)^(\S.*):\n((?:  .*\n)+)", run(program, "--help").stdout.decode()))
    found = {heading: re.findall(r"(?m)^  (\S+)", text) for heading, text in sections.items()}
    assert {heading: names for heading, names in found.items() if heading != "Options"} == {
        heading: [*names] for heading, names in verbs.items()
    }
    assert not any("..." in text for text in sections.values())


@pytest.mark.parametrize("group", [tarkit.tarkit, kubetpl.kubetpl])
def test_the_summary_of_a_verb_is_the_first_sentence_of_its_help(group: VerbGroup) -> None:
    for verbs in group.verbs.values():
        assert {name: group.load(name).get_short_help_str(200) for name in verbs} == verbs


# Option -> the verbs of tarkit where its name means something else; in all others it is the same.
SAME: dict[str, set[str]] = {
    "as_json": {"status"}, "fields": {"recordio-gen", "feed-test"}, "key_rule": {"explain"},
    "outdir": {"pick", "shuffle", "join", "sort", "reduce"},
    "number": set(),
    "against": set(), "draw_seed": set(), "source_format": set(), "shard_count": set(), "maxcount": set(),
    "manifest": {"check", "index"}, "on_damage": {"recordio-gen"},
    "on_repeated_key": {"shuffle", "join", "sort", "reduce"},
    "where": set(),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_an_option_has_one_name_help_and_default_in_all_verbs(name: str) -> None:
    verbs = {words: context.command for words, context in commands() if words.startswith("tarkit ")}
    found = {
        verb: (tuple(option.opts), option.help, option.metavar, str(option.default))
        for verb, command in verbs.items()
        for option in command.params
        if isinstance(option, click.Option) and option.name == name and verb.split()[-1] not in SAME[name]
    }
    assert len(found) > 1 and len({*found.values()}) == 1, found


def test_every_verb_has_one_heading() -> None:
    for verbs, folder in ((tarkit.VERBS, "verbs"), (kubetpl.VERBS, "kube/verbs")):
        names = [name for names in verbs.values() for name in names]
        files = (ROOT / "cli" / folder).glob("[!_]*.py")
        generators = GENERATORS if verbs is kubetpl.VERBS else ()
        assert sorted(names) == sorted([*generators, *(path.stem.replace("_", "-") for path in files)])


def test_no_section_names_an_option_that_is_gone() -> None:
    names = {parameter.name for _, context in commands() for parameter in context.command.params}
    assert set(HEADINGS) <= names


def test_what_to_install_is_what_the_extra_installs() -> None:
    extras = dict(CONFIG["options.extras_require"])
    for extra, packages in PACKAGES.items():
        wanted = [line.strip() for line in extras[extra].splitlines() if line.strip() and not line.startswith("#")]
        assert sorted(shlex.split(packages)) == sorted(wanted), extra
        assert f"pip install {packages} (" in str(MissingExtraError("x", extra))
    assert set(PACKAGES) == set(extras) - {"all", "test", "unit"}
