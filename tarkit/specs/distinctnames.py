"""Whether all names of a pattern are different, told from the pattern alone.

The reasoning: texts side by side can be told apart if each part but the last is a prefix code, which
means that none of its texts begins another of them, and if the last one has no text twice. Numbers
of one width are a prefix code; so are numbers before a text that does not begin with a digit.
What can not be shown this way is not denied: whoever asks must then look at all names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

from tarkit.specs.braces import Choice, Part, Product, Range

_FEW = 5000
"""So many texts of one part are looked at one by one."""

_MANY_PATTERNS = 64


def surely_distinct(tails: Sequence[Product], suffix: str) -> bool:
    """Whether no two of the texts of all ``tails`` are the same, and none ends with ``suffix``.

    False says only that it is not known.
    """
    parts = [_joined(tail.parts) for tail in tails]
    if len(parts) > _MANY_PATTERNS or not all(map(_distinct, parts)):
        return False
    if any(may_end_with(each, suffix) for each in parts):
        return False
    return all(_apart(one, other) for one, other in combinations(parts, 2))


def last_path_part(pattern: Product) -> Product | None:
    """What follows the last slash, if nothing before it varies; None if that is not so, or not known."""
    parts = _joined(pattern.parts)
    at = max((number for number, part in enumerate(parts) if _may_hold(part, "/")), default=-1)
    if at < 0:
        return Product(tuple(parts))
    if at > 0 or not isinstance(parts[0], Choice) or parts[0].count != 1:
        return None
    rest = _text(parts[0]).rpartition("/")[2]
    return Product(((Choice((rest,)),) if rest else ()) + tuple(parts[1:]))


def never_empty_or_dots(pattern: Product) -> bool:
    """Whether each text surely has a character that is no dot."""
    parts = _joined(pattern.parts)
    return any(isinstance(part, Range) or (part.count == 1 and _text(part).strip(".") != "") for part in parts)


def may_end_with(parts: Sequence[Part], suffix: str) -> bool:
    """Whether one of the texts may end with ``suffix``; True says only that it is not ruled out."""
    if not suffix:
        return True
    if not parts:
        return False
    last, before = parts[-1], parts[:-1]
    if isinstance(last, Range):
        return suffix[-1].isdigit()
    for option in last.options:
        if isinstance(option, Product):
            if may_end_with([*before, *option.parts], suffix):
                return True
        elif option.endswith(suffix) or (
            suffix.endswith(option) and may_end_with(before, suffix[: -len(option) or None])
        ):
            return True
    return False


def _text(part: Choice) -> str:
    return next(part.items(0, 1))


def _joined(parts: Sequence[Part]) -> list[Part]:
    """Parts, those of one text that stand side by side being one."""
    found: list[Part] = []
    for part in parts:
        if isinstance(part, Choice) and part.count == 1:
            text = _text(part)
            if found and isinstance(found[-1], Choice) and found[-1].count == 1:
                text = _text(found.pop()) + text  # type: ignore[arg-type]
            if text:
                found.append(Choice((text,)))
        elif isinstance(part, Choice) and len(part.options) == 1 and isinstance(part.options[0], Product):
            found += part.options[0].parts
        else:
            found.append(part)
    return found


def _may_hold(part: Part, character: str) -> bool:
    if isinstance(part, Range):
        return False
    return any(
        character in option if isinstance(option, str) else any(_may_hold(each, character) for each in option.parts)
        for option in part.options
    )


def _distinct(parts: Sequence[Part]) -> bool:
    if not parts:
        return True
    if not all(_is_prefix_code(part, parts[number + 1 :]) for number, part in enumerate(parts[:-1])):
        return False
    last = parts[-1]
    if isinstance(last, Range) or _is_prefix_code(last, ()):
        return True
    texts = _few(last)
    return texts is not None and len(set(texts)) == len(texts)


def _is_prefix_code(part: Part, after: Sequence[Part]) -> bool:
    if isinstance(part, Range):
        return _width(part) is not None or _begins_without_digit(after)
    texts = _few(part)
    if texts is not None:
        texts.sort()
        # In this order, whatever a text begins follows it at once.
        return not any(second.startswith(first) for first, second in pairwise(texts))
    heads = sorted(_heads(part))
    if any(second.startswith(first) for first, second in pairwise(heads)):
        return False
    return all(
        all(_is_prefix_code(each, inner[number + 1 :]) for number, each in enumerate(inner))
        for inner in (_joined(option.parts) for option in part.options if isinstance(option, Product))
    )


def _width(numbers: Range) -> int | None:
    """The length that all its texts have; None if they differ."""
    low, high = numbers.bounds
    widths = {len(str(low)), len(str(high)), len(str(max(low, min(high, 0))))}
    return numbers.width or (widths.pop() if len(widths) == 1 else None)


def _begins_without_digit(parts: Sequence[Part]) -> bool:
    if not parts or isinstance(parts[0], Range) or parts[0].count != 1:
        return False
    return not _text(parts[0])[0].isdigit()


def _few(part: Part) -> list[str] | None:
    return list(part.items(0, part.count)) if part.count <= _FEW else None


def _heads(part: Choice) -> Iterator[str]:
    """What each option surely begins with."""
    for option in part.options:
        if isinstance(option, str):
            yield option
        else:
            parts = _joined(option.parts)
            first = parts[0] if parts else None
            yield _text(first) if isinstance(first, Choice) and first.count == 1 else ""


def _apart(one: Sequence[Part], other: Sequence[Part]) -> bool:
    """Whether the texts of two patterns, each of them distinct, surely differ."""
    head, head_2 = _heads(Choice((Product(tuple(one)),))), _heads(Choice((Product(tuple(other)),)))
    first, second = next(head), next(head_2)
    if not first.startswith(second) and not second.startswith(first):
        return True
    return _differ_in_one_range(one, other)


def _differ_in_one_range(one: Sequence[Part], other: Sequence[Part]) -> bool:
    """Whether they are the same pattern, but for one range of numbers that do not meet."""
    if len(one) != len(other):
        return False
    for number, (left, right) in enumerate(zip(one, other, strict=True)):
        if isinstance(left, Range) and isinstance(right, Range):
            if left == right and _is_prefix_code(left, one[number + 1 :]):
                continue
            (low, high), (low_2, high_2) = left.bounds, right.bounds
            after, after_2 = one[number + 1 :], other[number + 1 :]
            # Different numbers are different texts, if it is known where both of them end.
            known = not after or (_begins_without_digit(after) and _begins_without_digit(after_2))
            known = known or (_width(left) is not None and _width(left) == _width(right))
            # What follows them can not make the names the same again.
            return known and (high < low_2 or high_2 < low)
        if not _same(left, right, one[number + 1 :]):
            return False
    return False


def _same(left: Part, right: Part, after: Sequence[Part]) -> bool:
    """Whether both are the same choice, and its texts can be told apart."""
    if isinstance(left, Range) or isinstance(right, Range) or left.count != right.count:
        return False
    texts = _few(left)
    return texts is not None and texts == _few(right) and _is_prefix_code(left, after)
