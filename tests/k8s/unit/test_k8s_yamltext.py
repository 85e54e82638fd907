"""Manifests as text: kubectl's own parser reads what was written, and what is read here is what
kubectl reads.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.errors import UsageError
from tarkit.k8s.podfields import escape_in, substitute
from tarkit.k8s.yamltext import dump_documents, dump_json, load_documents, load_yaml

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
# What a command is made of; far more often wrong than arbitrary characters.
PIECES = """' " ` { } {i} ${HOME} $$ $(date) $(A) \\ | > # : - --- ... % @ &a *a !x é 日本 😀 EOF a ?"""
BLANKS = [*"\n \t\r\x01\x7f\x85\xa0\u2028\ufeff", "\n\n", "  ", " #", ": ", "- "]
COMMANDS = st.lists(st.sampled_from([*PIECES.split(), *BLANKS]), max_size=20).map("".join)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS | COMMANDS,
    lambda inner: (
        st.lists(inner.filter(lambda each: each is not None), max_size=4) | st.dictionaries(TEXTS, inner, max_size=4)
    ),
    max_leaves=12,
)


@given(TREES)
@settings(max_examples=150, deadline=None)
def test_what_is_written_is_read_back(tree: Any) -> None:
    document = {"kind": "X", "value": tree, "items": [[tree], {"a": tree}] if tree is not None else []}
    text = dump_documents([document, document])
    assert list(yaml.safe_load_all(text)) == [document] * 2 == load_documents(text, "x")
    assert dump_documents([document, document]) == text


def test_a_command_can_be_read_by_people() -> None:
    text = dump_documents(
        [{"kind": "Job", "args": ["\ncurl -s URL |\n  tarproc -c 'ls -l'\n"], "a": ["4Gi", "-c", "1"]}]
    )
    assert text == "kind: Job\nargs:\n- |2\n\n  curl -s URL |\n    tarproc -c 'ls -l'\na:\n- 4Gi\n- -c\n- '1'\n"


def test_json_is_a_list_of_several_and_lists_are_taken_apart() -> None:
    assert yaml.safe_load(dump_json([{"kind": "A"}])) == {"kind": "A"}
    assert load_documents(dump_json([{"kind": "A"}, {"kind": "B"}]), "x") == [{"kind": "A"}, {"kind": "B"}]


def test_numbers_of_settings_stay_as_they_are_written() -> None:
    text = "a: [012, 1.10, 1e3, 0x1F, y, .inf, yes, 12:30]"
    assert load_yaml(text, "x", numbers=False) == [{"a": ["012", "1.10", "1e3", "0x1F", "y", ".inf", True, "12:30"]}]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("kind: A\nkind: B\n", "line 2, column 1: WRONG: the key 'kind' comes twice"),
        ('{"kind": "A", "a": 1, "a": 2}', "line 1, column 23: WRONG: the key 'a' comes twice"),
        ("kind: A\nb: &x {k: 1}\nc: {<<: *x, k: 2, k: 3}\n", "line 3, column 19: WRONG: the key 'k' comes twice"),
        ("kind: A\n1: b\n", "line 2, column 1: WRONG: the key 1 is not a text; put it in quotes"),
        ("kind: A\non: b\n", "line 2, column 1: WRONG: the key True is not a text"),
        ("kind: A\na: y\n", "line 2, column 4: WRONG: parsers of YAML do not agree what y is"),
        ("kind: A\na: 1e3\n", "line 2, column 4: WRONG: parsers of YAML do not agree what 1e3 is"),
        ("kind: A\na: [null]\n", "line 2, column 4: WRONG: null in a list is not a value"),
        ('kind: A\na: "x\\0"\n', "line 2, column 4: WRONG: a NUL is in this text"),
        ("kind: A\na: !!timestamp 2026-11-21\n", "WRONG: Object of type date"),
        ("a: {{ name }}\n", "line 1, column "), ("a: !!python/object:os.system {}\n", "line 1, column 4: "),
        ("kind: [\n", "line 2, column 1: "), ("kind: \x01\n", "WRONG: "), ("[" * 5000, "line 1, "),
        ("# nothing\n---\n", "it has no manifest in it"), ("- a\n", "document 1 is not a manifest: it has no kind"),
        ("kind: A\n---\nname: x\n", "document 2 is not a manifest: it has no kind"),
        ("kind: List\nitems: [{a: 1}]\n", "document 1 is not a manifest: it has no kind"),
    ],
)  # fmt: skip
def test_bad_files_are_refused_with_their_line(text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_documents(text, "x.yaml")
    assert str(caught.value).startswith(f"x.yaml: {complaint.replace('WRONG', 'this cannot be used as YAML')}")


@pytest.mark.parametrize("text", ["a\udc80", "a\0b"])
def test_what_no_manifest_can_hold_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no manifest can hold a NUL, or bytes that are not UTF-8"):
        dump_documents([{"kind": "Job", "args": [text]}])


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$$", "$"), ("$(A)", "1"), ("$(B)", "$(B)"), ("$$(A)", "$(A)"), ("$(echo $$)", "$(echo $$)"), ("$x", "$x"),
        ("$(A", "$(A"), ("$", "$"), ("$$$(A)", "$1"), ("${A}", "${A}"), ("$(A)$(A)", "11"),
    ],
)  # fmt: skip
def test_expansion_is_the_kubelets(text: str, expanded: str) -> None:
    assert substitute(text, {"A": "1"}) == expanded


@given(COMMANDS | st.text("$()Ax", max_size=12))
@settings(max_examples=200, deadline=None)
def test_an_escaped_text_reaches_the_container_as_it_was(text: str) -> None:
    assert substitute(escape_in({"env": [{"name": "A"}]}, text), {"A": "value"}) == text
    assert escape_in({"env": [{"name": "A"}]}, "echo $(date) ${HOME} $x") == "echo $(date) ${HOME} $x"
