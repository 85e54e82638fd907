"""Manifests as text: every parser reads back what was written, and bad files are refused with their line."""

from __future__ import annotations

import json
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.errors import UsageError
from tarkit.k8s.podfields import escape_in, substitute
from tarkit.k8s.yamlreading import Doubt, key_text, plain_value
from tarkit.k8s.yamltext import dump_documents, dump_json, load_documents

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
# What a command is made of; far more often wrong than arbitrary characters.
COMMANDS = st.lists(
    st.sampled_from(
        [
            "\n",
            "\n\n",
            " ",
            "  ",
            "\t",
            "\r",
            "'",
            '"',
            "`",
            "{",
            "}",
            "{i}",
            "${HOME}",
            "$$",
            "$(date)",
            "$(A)",
            "\\",
            "|",
            ">",
            "#",
            " #",
            ": ",
            "- ",
            "---",
            "...",
            "%",
            "@",
            "&a",
            "*a",
            "!x",
            "é",
            "日本",
            "😀",
            "\u2028",
            "\x85",
            "\x7f",
            "\ufeff",
            "EOF",
            "a",
        ]
    ),
    max_size=20,
).map("".join)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS | COMMANDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
WORDS = [
    "y",
    "N",
    "yes",
    "off",
    "~",
    "null",
    "1e3",
    "0o14",
    "012",
    "1_000",
    "0x1f",
    "1:30",
    "=",
    "<<",
    "-",
    "?",
    "1.0",
    ".5",
    ".inf",
    "2026-11-21",
    "a: b",
    "a #b",
    "#",
    " a",
    "a ",
    "",
    "@x",
    "`x`",
    "%x",
    "&x",
    "*x",
    "!x",
    "+1",
    "x:",
    "12:30:45",
    "a:1",
]


@pytest.mark.exhaustive
@given(TREES)
@settings(max_examples=150, deadline=None)
def test_what_is_written_is_read_back(tree: Any) -> None:
    text = dump_documents([{"kind": "X", "value": tree, "items": [tree, [tree]]}])
    assert yaml.safe_load(text) == {"kind": "X", "value": tree, "items": [tree, [tree]]}
    assert load_documents(text, "x") == [{"kind": "X", "value": tree, "items": [tree, [tree]]}]


@given(COMMANDS)
@settings(max_examples=200, deadline=None)
def test_commands_are_read_back_byte_for_byte(command: str) -> None:
    document = {"kind": "Job", "spec": {"containers": [{"args": [command], "name": "main"}]}}
    assert yaml.safe_load(dump_documents([document])) == document


def test_words_that_parsers_take_for_other_things_are_texts_for_kubectl(tmp_path: Path, kubectl_program: str) -> None:
    """kubectl's own parser is another one than ours, and knows other numbers and truth values."""
    commands = [" lead\n\n  two \n", "\n\nx\n\n\n", "a\n b\n\n", "x\n\ty\r\n", "1\n2", "\n", "😀\n\u2028\n", "a\n\n"]
    data = {f"k{number}": text for number, text in enumerate([*WORDS, *commands])}
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": data}
    folder = tmp_path / "k"
    folder.mkdir()
    (folder / "c.yaml").write_text(dump_documents([manifest]), "utf-8")
    (folder / "kustomization.yaml").write_text("resources: [c.yaml]\n")
    # kustomize parses and prints without any server.
    done = subprocess.run(
        [kubectl_program, "kustomize", str(folder)],
        capture_output=True,
        text=True,
        env={"HOME": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert load_documents(done.stdout, "kubectl")[0]["data"] == data


@pytest.mark.parametrize("word", WORDS)
def test_words_are_read_back(word: str) -> None:
    assert yaml.safe_load(dump_documents([{"a": word, word or "b": [word]}])) == {"a": word, word or "b": [word]}


def test_a_command_can_be_read_by_people() -> None:
    text = dump_documents([{"kind": "Job", "args": ["\ncurl -s URL |\n  tarproc -c 'ls -l'\n"]}])
    assert text == "kind: Job\nargs:\n- |2\n\n  curl -s URL |\n    tarproc -c 'ls -l'\n"


def kubectl_reads(program: str, folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """What kubectl makes of YAML, without a server."""
    (folder / "words.yaml").write_text(text, "utf-8")
    return subprocess.run(
        [program, "annotate", "--local", "-o", "json", "-f", str(folder / "words.yaml"), "a=b"],
        capture_output=True,
        text=True,
        env={"HOME": str(folder)},
        check=False,
    )


ENDLESS = (float("inf"), float("-inf"))
HEAD = "apiVersion: example.com/v1\nkind: Words\nmetadata: {name: x}\nwords:\n"


def plain_words() -> list[str]:
    """A few hundred plain scalars that look like numbers, truth values, times and nothing."""
    chosen = random.Random(20261122)
    letters = "0123456789" * 2 + "+-._eExXoObBaF:"
    made = {"".join(chosen.choice(letters) for _ in range(chosen.randint(1, 6))) for _ in range(700)}
    made |= {
        f"{sign}{body}" for sign in ("", "+", "-") for body in ("0x1F", "0o17", "0O17", "017", "08", "0b11", "1_0")
    }
    made |= {
        *WORDS,
        "y",
        "n",
        "Y",
        "N",
        "Yes",
        "yES",
        "On",
        "oFF",
        "True",
        "tRUE",
        "Null",
        "nULL",
        "1e10",
        "12:30",
        "1e400",
    }
    made |= {
        ".5_0",
        "._5",
        ".5_",
        "1e6",
        "1e21",
        "123456.7",
        "1234567.5",
        "18446744073709551616",
        "-9223372036854775809",
    }
    # Not plain scalars, in a list or as a key.
    return sorted(
        word for word in made if re.fullmatch(r"[A-Za-z0-9+._~=<-][A-Za-z0-9+._:<-]*(?<!:)", word) and word != "-"
    )


def test_plain_words_are_what_they_are_to_kubectl(tmp_path: Path, kubectl_program: str) -> None:
    words = [word for word in plain_words() if plain_value(word) not in ENDLESS]
    text = HEAD + "".join(f"- {word}\n" for word in words)
    done = kubectl_reads(kubectl_program, tmp_path, text)
    assert done.returncode == 0, done.stderr
    theirs, ours = json.loads(done.stdout)["words"], load_documents(text, "x")[0]["words"]
    assert len(words) > 400
    for word, one, other in zip(words, ours, theirs, strict=True):
        same = float(one) == float(other) if type(one) in (int, float) and type(other) in (int, float) else one == other
        assert same and isinstance(one, bool) == isinstance(other, bool), (word, one, other)


def test_plain_keys_are_what_they_are_to_kubectl(tmp_path: Path, kubectl_program: str) -> None:
    words = [word for word in plain_words() if plain_value(word) not in (*ENDLESS, None) and word != "<<"]
    words = [word for word in words if key_text(plain_value(word)) is not None]
    text = HEAD + "".join(f"- {word}: x\n" for word in words)
    done = kubectl_reads(kubectl_program, tmp_path, text)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["words"] == load_documents(text, "x", [])[0]["words"]


@pytest.mark.parametrize(
    "line", ["- .inf", "- -.INF", "- .nan", "- ~: x", "- null: x", "- 9223372036854775808: x", "- !!int x"]
)
def test_what_kubectl_refuses_is_refused(line: str, tmp_path: Path, kubectl_program: str) -> None:
    assert kubectl_reads(kubectl_program, tmp_path, f"{HEAD}{line}\n").returncode == 1
    with pytest.raises(UsageError, match="line 5, column "):
        load_documents(f"{HEAD}{line}\n", "x", [])


def test_what_is_written_plain_is_a_text_to_kubectl(tmp_path: Path, kubectl_program: str) -> None:
    document = {"apiVersion": "example.com/v1", "kind": "Words", "metadata": {"name": "x"}}
    document["words"] = [{word: word} for word in plain_words()]
    done = kubectl_reads(kubectl_program, tmp_path, dump_documents([document]))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["words"] == document["words"]


def test_what_kubectl_reads_without_a_word_is_noted() -> None:
    doubts: list[Doubt] = []
    text = "kind: A\ndata:\n  on: a\n  y: b\nkind: B\nbase: &x {k: 1}\nmore: {<<: *x, k: 2}\n"
    assert load_documents(text, "x", doubts) == [
        {"kind": "B", "data": {"true": "b"}, "base": {"k": 1}, "more": {"k": 2}}
    ]
    assert [f"{each.where}: {each.sentence}" for each in doubts] == [
        "line-3: the key on is 'true' to kubectl; put it in quotes",
        "line-4: the key y is 'true' to kubectl; put it in quotes",
        "line-4: the key 'true' comes twice; the last one counts, leave out the others",
        "line-5: the key 'kind' comes twice; the last one counts, leave out the others",
    ]


def test_json_is_read_as_json() -> None:
    """YAML has no halves of characters; JSON has, and kubectl tries it first."""
    doubts: list[Doubt] = []
    text = '{"kind": "A", "emoji": "\\ud83d\\ude00", "a": 1.0, "a": "x\\/y"}'
    assert load_documents(text, "x", doubts) == [{"kind": "A", "emoji": "😀", "a": "x/y"}]
    assert doubts == [("JSON", "the key 'a' comes twice; the last one counts, leave out the others")]
    with pytest.raises(UsageError, match=r"line 1, column 28: .*the key 'a' comes twice"):
        load_documents('{"kind": "A", "a": [1, 2], "a": 1}', "x")
    with pytest.raises(UsageError, match="line 1: more than 200 levels"):
        load_documents('{"kind": ' + "[" * 500 + "]" * 500 + "}", "x")


def test_lists_are_taken_apart_as_kubectl_does() -> None:
    inner = {"apiVersion": "v1", "kind": "List", "items": [{"kind": "B"}]}
    text = json.dumps({"apiVersion": "v1", "kind": "JobList", "items": [{"metadata": {}}, inner]})
    assert load_documents(text, "x") == [{"apiVersion": "v1", "kind": "Job", "metadata": {}}, {"kind": "B"}]


def test_the_same_document_gives_the_same_bytes() -> None:
    document = {"kind": "Job", "b": {"x": 1, "a": [1, {"c": None, "d": True}]}}
    assert dump_documents([document, document]) == dump_documents([document, document])
    assert dump_documents([document, document]).count("---\n") == 1


def test_json_is_a_list_of_several() -> None:
    assert yaml.safe_load(dump_json([{"kind": "A"}])) == {"kind": "A"}
    assert load_documents(dump_json([{"kind": "A"}, {"kind": "B"}]), "x") == [{"kind": "A"}, {"kind": "B"}]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "kind: A\nkind: B\n",
            "x.yaml: line 2, column 1: this cannot be used as YAML: the key 'kind' comes twice",
        ),
        ("kind: A\n1: b\n", "x.yaml: line 2, column 1: this cannot be used as YAML: the key 1 is '1' to kubectl"),
        ("kind: [\n", "x.yaml: line 2, column 1: "),
        ("a: {{ name }}\n", "x.yaml: line 1, column 5: "),
        ("", "x.yaml: it has no manifest in it"),
        ("# nothing\n---\n", "x.yaml: it has no manifest in it"),
        ("- a\n", "x.yaml: document 1 is not a manifest: it has no kind"),
        ("kind: A\n---\nname: x\n", "x.yaml: document 2 is not a manifest: it has no kind"),
        ("kind: List\nitems: [{a: 1}]\n", "x.yaml: document 1 is not a manifest: it has no kind"),
        ("a: !!python/object:os.system {}\n", "x.yaml: line 1, column 4: "),
        ("kind: \x01\n", "x.yaml: this cannot be used as YAML: "),
        ("[" * 5000, "x.yaml: "),
    ],
)
def test_bad_files_are_refused_with_their_line(text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_documents(text, "x.yaml")
    assert str(caught.value).startswith(complaint)


@pytest.mark.parametrize(("text", "why"), [("a\udc80", "not UTF-8"), ("a\0b", "NUL")])
def test_what_no_manifest_can_hold_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        dump_documents([{"kind": "Job", "args": [text]}])


def test_other_values_are_refused() -> None:
    with pytest.raises(UsageError, match="got bytes"):
        dump_documents([{"kind": b"x"}])


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$$", "$"),
        ("$(A)", "1"),
        ("$(B)", "$(B)"),
        ("$$(A)", "$(A)"),
        ("$(echo $$)", "$(echo $$)"),
        ("$x", "$x"),
        ("$(A", "$(A"),
        ("$", "$"),
        ("$$$(A)", "$1"),
        ("${A}", "${A}"),
        ("$(A)$(A)", "11"),
    ],
)
def test_expansion_is_the_kubelets(text: str, expanded: str) -> None:
    assert substitute(text, {"A": "1"}) == expanded


WITH_A = {"env": [{"name": "A"}]}


@given(COMMANDS | st.text("$()Ax", max_size=12))
@settings(max_examples=200, deadline=None)
def test_an_escaped_text_reaches_the_container_as_it_was(text: str) -> None:
    assert substitute(escape_in(WITH_A, text), {"A": "value"}) == text


def test_escaping_leaves_alone_what_no_kubelet_touches() -> None:
    assert escape_in(WITH_A, "echo $(date) ${HOME} $x") == "echo $(date) ${HOME} $x"
