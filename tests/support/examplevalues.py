"""Values of Examples: any of them, and whether two are the same."""

from __future__ import annotations

from array import array
from typing import Any

from hypothesis import strategies as st

from tarkit.formats.example import BytesList


def features() -> st.SearchStrategy[Any]:
    """Values as they are decoded."""
    return st.one_of(
        st.none(),
        st.lists(st.binary(max_size=200), max_size=5).map(BytesList),
        st.lists(st.floats(width=32), max_size=40).map(lambda values: array("f", values)),
        st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40).map(lambda values: array("q", values)),
    )


def named(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=12), values, max_size=6)


def same(found: Any, expected: Any) -> bool:
    """Equal in kinds and bits; NaN equals itself."""
    if isinstance(expected, dict):
        return (
            isinstance(found, dict)
            and found.keys() == expected.keys()
            and all(same(found[name], expected[name]) for name in expected)
        )
    if isinstance(expected, array):
        return isinstance(found, array) and (found.typecode, found.tobytes()) == (expected.typecode, expected.tobytes())
    if isinstance(expected, BytesList) or expected is None:
        return type(found) is type(expected) and found == expected
    return len(found) == len(expected) and all(map(same, found, expected))
