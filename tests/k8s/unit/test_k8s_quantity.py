"""Quantities as the official client reads them, and as kubectl writes them, which is the server's
code; and names.
"""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.errors import UsageError, printable
from tarkit.k8s import names
from tarkit.k8s.quantity import canonical, is_milli, parse_quantity, whole

SUFFIXES = [*"numkMGTPE", "", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e0", "e3", "E+2", "e-4"]
NUMBERS = st.one_of(
    st.integers(0, 10**12).map(str),
    st.decimals(0, 10**6, places=3, allow_nan=False).map(str),
    st.sampled_from(["0", "0.5", "1.0", "1.500", ".5", "1.", "007", "1024", "1023", "1536", "4096", "1000", "0.1"]),
)
QUANTITIES = st.tuples(st.sampled_from(["", "", "", "+", "-"]), NUMBERS, st.sampled_from(SUFFIXES)).map("".join)
GENERAL = "write a number with a suffix or without, such as 2, 500m, 4G or 4Gi"


def valid(text: str) -> bool:
    try:
        parse_quantity(text)
    except UsageError:
        return False
    return True


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (1.0, "1"), (1, "1"), (0.5, "500m"), ("1000m", "1"), ("4096Mi", "4Gi"), ("4G", "4G"), ("0.1", "100m"), (0, "0"),
        ("4000M", "4G"), ("1.5Gi", "1536Mi"), ("1Ki", "1Ki"), ("0.1Ki", "102400m"), ("1e3", "1e3"),
        ("1E3", "1e3"), ("1E+10", "10e9"), ("1E", "1E"), ("0.9n", "1n"), ("-0.9n", "-1n"), ("1.500", "1500m"),
        ("+1", "1"), (" 4G ", "4G"), ("0Gi", "0"), ("-0", "0"), ("-1.1Ki", "-1126400m"), ("1000Ki", "1000Ki"),
        ("4000e3", "4e6"), ("7Ei", "7Ei"), ("9E", "9E"),
    ],
)  # fmt: skip
def test_canonical(text: str | float, expected: str) -> None:
    assert canonical(text) == expected


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        *((text, "write 4G (10^9 bytes) or 4Gi (2^30 bytes)") for text in ("4GB", "4 GB", "4g", "4GiB")),
        ("4K", "write 4k (10^3 bytes) or 4Ki (2^10 bytes)"),
        *((text, GENERAL) for text in ("512 megabytes", "2 cores", "a\nb", "", float("nan"), True, "1" * 70)),
    ],
)
def test_what_is_not_a_quantity(text: str | float, hint: str) -> None:
    for function in (parse_quantity, canonical):
        with pytest.raises(UsageError) as raised:
            function(text)
        assert str(raised.value) == f"{printable(str(text))} is not a quantity: {hint}"


LARGEST = "9223372036854775807"
LARGE = {
    "12E": "12E", "12.5E": "12500P", "9300P": "9300P", "9.3E": "9300P", "999E": "999E", "1e30": "1e30",
    "1e20": "100e18", "8Ei": LARGEST, "12Ei": LARGEST, LARGEST: LARGEST,
}  # fmt: skip
"""As kubectl writes them."""


def test_quantities_that_are_larger_than_a_server_counts() -> None:
    assert {text: canonical(text) for text in LARGE} == LARGE
    with pytest.raises(UsageError, match="1000E is too much: servers have no suffix for 1000E, and keep it as 1"):
        canonical("1000E")
    assert canonical("9999999999999999999") == LARGEST  # a server keeps the text, and counts so


def test_quantities_that_are_rounded_up_to_whole_units() -> None:
    found = {text: whole(text) for text in ("0.1Gi", "400m", "1n", "12E", "4Gi", "1.5", "1.5Gi", "2500m")}
    assert found == {
        "0.1Gi": "107374183", "400m": "1", "1n": "1", "12E": "12E", "4Gi": "4Gi", "1.5": "2", "1.5Gi": "1536Mi",
        "2500m": "3",
    }  # fmt: skip


@given(QUANTITIES.filter(valid))
def test_the_canonical_form_says_the_same_and_stays(text: str) -> None:
    once = canonical(text)
    assert parse_quantity(once) == parse_quantity(text)
    assert canonical(once) == once
    assert "." not in once and not once.startswith("+")


@settings(deadline=None)
@given(QUANTITIES.filter(valid))
def test_the_official_client_reads_the_same_number(text: str) -> None:
    try:
        from kubernetes.utils.quantity import parse_quantity as theirs
    except ImportError:
        pytest.skip("NO OFFICIAL CLIENT TO COMPARE WITH: pip install kubernetes")
    number: Decimal = theirs(text)  # type: ignore[no-untyped-call,unused-ignore]
    # What is finer is rounded by servers, not by the client.
    if abs(number) < 2**63 and number == number.quantize(Decimal("1e-9")):
        assert parse_quantity(text) == number


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (names.dns_label, ["a", "a-1", "0a", "a" * 63], ["", "A", "-a", "a-", "a.b", "a_b", "a" * 64, "a\n", "ä"]),
        (names.dns_label_1035, ["a", "a-1"], ["0a", "a-", "a.b", "A"]),
        (names.dns_subdomain, ["a", "a.b", "0.1"], ["", "a..b", ".a", "a.", "A.b", "a" * 254, "a.-b"]),
        (names.label_value, ["", "A_b.c", "1"], ["a b", "-a", "a@b", "a" * 64, "a/b"]),
        (names.config_key, ["a", ".a", "A_b.c"], ["", ".", "..", "..a", "a/b", "a b", "a" * 254]),
    ],
)
def test_names(check: object, right: list[str], wrong: list[str]) -> None:
    assert callable(check)
    assert [text for text in right if check(text) is not None] == []
    assert [text for text in wrong if check(text) is None] == []
    assert all(str(check(text)).isprintable() for text in wrong)


@given(st.text(max_size=100))
def test_safe_labels_are_labels(text: str) -> None:
    label = names.safe_label(text)
    assert names.dns_label(label) is None and names.label_value(label) is None
    assert names.safe_label(text) == label == names.safe_label(label)
    if names.dns_label(text) is None:
        assert label == text


def test_safe_labels_of_different_texts_differ() -> None:
    assert names.safe_label("tom@host/a b") != names.safe_label("tom@host/a.b")
    assert names.safe_label("MyJob") == "myjob"
    assert names.safe_label("x" * 80) != names.safe_label("x" * 81)


def test_the_budget_of_indexed_names() -> None:
    assert [names.index_name_budget(number) for number in (0, 1, 10, 11, 1282, 100_000)] == [61, 61, 61, 60, 58, 57]


def test_thousandths() -> None:
    assert [text for text in ("400m", "1n", " 5u ", "4M", "4Mi", "1", 0.5) if is_milli(text)] == ["400m", "1n", " 5u "]
