"""kubectl reads quantities, names, texts and commands as they are read here."""

from __future__ import annotations

import json
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tarkit.errors import UsageError
from tarkit.k8s.quantity import canonical, parse_quantity
from tarkit.k8s.yamltext import dump_documents, load_documents

SUFFIXES = [*"numkMGTPE", "", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e0", "e3", "E+2", "e-4"]
NUMBERS = st.one_of(
    st.integers(0, 10**12).map(str),
    st.decimals(0, 10**6, places=3, allow_nan=False).map(str),
    st.sampled_from(["0", "0.5", "1.0", "1.500", ".5", "1.", "007", "1024", "1023", "1536", "4096", "1000", "0.1"]),
)
QUANTITIES = st.tuples(st.sampled_from(["", "", "", "+", "-"]), NUMBERS, st.sampled_from(SUFFIXES)).map("".join)


def valid(text: str) -> bool:
    try:
        parse_quantity(text)
    except UsageError:
        return False
    return True


LARGEST = "9223372036854775807"
LARGE = {
    "12E": "12E", "12.5E": "12500P", "9300P": "9300P", "9.3E": "9300P", "999E": "999E", "1e30": "1e30",
    "1e20": "100e18", "8Ei": LARGEST, "12Ei": LARGEST, LARGEST: LARGEST,
}  # fmt: skip
"""As kubectl writes them."""


def quota(kubectl: str, texts: list[str]) -> subprocess.CompletedProcess[bytes]:
    """kubectl's generator of quotas reads and writes quantities by the very code of the server."""
    hard = ",".join(f"r{number}={text}" for number, text in enumerate(texts))
    command = [kubectl, "create", "quota", "q", "--dry-run=client", "-o", "json", f"--hard={hard}"]
    return subprocess.run(command, capture_output=True, check=False)


def kept(kubectl: str, texts: list[str]) -> list[str]:
    done = quota(kubectl, texts)
    assert done.returncode == 0, done.stderr
    hard = json.loads(done.stdout)["spec"]["hard"]
    return [hard[f"r{number}"] for number in range(len(texts))]


@settings(max_examples=2, deadline=None)
@given(texts=st.lists(QUANTITIES.filter(valid), min_size=300, max_size=400))
def test_kubectl_writes_the_same(kubectl_program: str, texts: list[str]) -> None:
    forms = [canonical(text) for text in ("1.500", "+1", "01", "1.G", "1E3", "12Mi", "1025Ki", "8Mi", "1e3")]
    found = kept(kubectl_program, [*forms, "Gi", "1000E", *texts, *LARGE])
    assert found[: len(forms)] == forms
    # Servers take these for something else, so they are refused here.
    assert found[len(forms) : len(forms) + 2] == ["0", "1"] and not valid("Gi") and not valid("1000E")
    for text, theirs in zip([*texts, *LARGE], found[len(forms) + 2 :], strict=True):
        # Some texts are kept as they were, such as 1.500 and +1.
        ours = canonical(text)
        assert ours == theirs or (theirs == text and parse_quantity(ours) == parse_quantity(text))


def test_kubectl_refuses_what_we_refuse(kubectl_program: str) -> None:
    for text in ("4 Gx", "1ee3", "0x10", "4GB"):
        assert quota(kubectl_program, [text]).returncode != 0 and not valid(text)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
# What a command is made of; far more often wrong than arbitrary characters.
PIECES = """' " ` { } {i} ${HOME} $$ $(date) $(A) \\ | > # : - --- ... % @ &a *a !x é 日本 😀 EOF a ?"""
BLANKS = [*"\n \t\r\x01\x7f\x85\xa0\u2028\ufeff", "\n\n", "  ", " #", ": ", "- "]
COMMANDS = st.lists(st.sampled_from([*PIECES.split(), *BLANKS]), max_size=20).map("".join)
HEAD = "apiVersion: example.com/v1\nkind: Words\nmetadata: {name: x}\nwords:\n"
ODD = """0x1F 0o17 0O17 017 08 0b11 +0x1F -0o17 +08 -0b11 ~ = << 1_000 1__0 -_1 0_x1F 1e3 1e6 1e21 1e400 12:30 12:30:45
1:30.5 2026-11-21 2026-11-21T12:00:00Z 10.0.0.1 .5_0 ._5 .5_ .5 1. 1.10 1.2.3 123456.7 18446744073709551616
-9223372036854775809 .inf -.INF .nan +.inf 4Gi 500m + . a:1 x y Y n N yes Yes YES yES no No NO on On oN off Off oFF true
True tRUE false False FALSE null Null nULL"""


def plain_words() -> list[str]:
    """A few hundred plain scalars that look like numbers, truth values, times and nothing."""
    chosen = random.Random(20261122)
    letters = "0123456789" * 2 + "+-._eExXoObBaF:"
    made = {"".join(chosen.choice(letters) for _ in range(chosen.randint(1, 6))) for _ in range(700)}
    made |= set(ODD.split())
    # Not plain scalars, in a list or as a key.
    return sorted(word for word in made if re.fullmatch(r"[\w+.~=<-][\w+.:<-]*(?<!:)", word) and word != "-")


def kubectl_reads(program: str, folder: Path, text: str) -> Any:
    """The words of a manifest as kubectl reads them, without a server; None if it refuses the
    file."""
    (folder / "words.yaml").write_text(text, "utf-8")
    done = subprocess.run(
        [program, "annotate", "--local", "-o", "json", "-f", str(folder / "words.yaml"), "a=b"],
        capture_output=True,
        text=True,
        env={"HOME": str(folder)},
        check=False,
    )
    return json.loads(done.stdout)["words"] if done.returncode == 0 else None


def ours(text: str) -> Any:
    try:
        return load_documents(text, "x")[0]["words"]
    except UsageError:
        return None


def test_plain_words_are_what_they_are_to_kubectl_or_refused(tmp_path: Path, kubectl_program: str) -> None:
    taken = [word for word in plain_words() if ours(f"{HEAD}  a: {word}\n") is not None]
    refused = set(plain_words()) - set(taken)
    assert len(taken) > 100
    assert refused >= {"y", "N", "1e3", "0o17", "08", "1_000", "0x1F", ".5", "1.", "+0x1F", ".inf", ".nan"}
    assert not refused & {"017", "1.10", "12:30", "2026-11-21", "10.0.0.1", "4Gi", "Yes", "yES", "~", "=", "+", "."}
    theirs = kubectl_reads(kubectl_program, tmp_path, HEAD + "".join(f"  a{n}: {w}\n" for n, w in enumerate(taken)))
    for number, word in enumerate(taken):
        own, value = ours(f"{HEAD}  a: {word}\n")["a"], theirs[f"a{number}"]
        # What 64 bits cannot hold is a float to Go.
        same = float(own) == float(value) if {type(own), type(value)} <= {int, float} else own == value
        assert same and isinstance(own, bool) == isinstance(value, bool), (word, own, value)


@given(st.lists(COMMANDS | TEXTS, min_size=20, max_size=60))
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_is_written_is_the_same_text_to_kubectl(
    tmp_path_factory: pytest.TempPathFactory, kubectl_program: str, texts: list[str]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    words = [each for text in (*texts, *plain_words()) for each in (text, [text], {text: text})]
    document = {"apiVersion": "example.com/v1", "kind": "Words", "metadata": {"name": "x"}, "words": words}
    assert kubectl_reads(kubectl_program, folder, dump_documents([document])) == words
