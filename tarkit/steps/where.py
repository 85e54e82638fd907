"""Conditions over samples, as text: ``json.width >= 512 and cls != 7``; and their values.

The text is parsed by Python's own parser, and only the few forms below become functions; nothing of
it is ever evaluated as Python. ``and``, ``or``, ``not`` and parentheses; ``== != < <= > >= in not
in``; ``+ - * /`` of numbers; numbers, texts in quotes, lists; ``true``, ``false``, ``null``.
``key``; ``FIELD``, the text of a field, or its number where it is compared with one; ``json.a.b``,
a value in a JSON field; ``size(FIELD)``, its bytes; ``has(FIELD)``; ``len(x)``; ``lower(x)``;
``match(x, 'REGEX')``, anywhere in it; ``width(FIELD)`` and ``height(FIELD)`` from the header of a
picture. A field whose name is not one in Python is ``field('seg.png')``.

A missing field or JSON value is null, and so is the width of a file that Pillow cannot open.
Comparisons with null are false, except ``x == null`` and ``x != null``.
"""

from __future__ import annotations

import ast
import json
import operator
import re
import warnings
from collections.abc import Callable
from typing import Any

from tarkit.errors import DataError, UsageError, printable
from tarkit.samples.images import picture_size
from tarkit.samples.sample import Sample, is_reserved
from tarkit.store.fieldfile import FieldFile

_MOST_CHARACTERS = 1000
_MOST_DEPTH = 50
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_STRING = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
_ADVICE = {
    r"(?i:\bis\s+not\b)": "x != null",
    r"(?i:\bis\b)": "x == null",
    r"(?i:\blike\b)": "match(x, 'REGEX')",
    r"(?i:\bbetween\b)": "1 <= x <= 9",
    r"\bAND\b|&": "and",
    r"\bOR\b|\|": "or",
    r"\bIN\b": "in",
    r"<>": "!=",
    r"\bNOT\b|!(?!=)": "not",
    r"(?<![=!<>])=(?!=)": "== for equal",
    r"(?<![\w)\]])\.[A-Za-z_]": "json.x, without a dot before it",
    r"\w\s*\[": "json.a.b",
    "": "and, or, not, == != < <= > >=, in, + - * /, size has len lower match width height field",
}
"""Words of SQL, pandas, jq and others -> the word of this language; the last is for all others."""
_TESTS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: operator.contains, ast.NotIn: operator.contains,
}  # fmt: skip
_COMPUTE: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip


class _FieldText(str):
    """The text of a field, which is taken for a number where it is compared with one."""

    __slots__ = ()


class _Look:
    """A sample, and what was parsed of its fields."""

    def __init__(self, sample: Sample, option: str) -> None:
        self.sample, self._option = sample, option
        self._parsed: dict[tuple[str, Callable[[bytes], Any]], Any] = {}

    def parsed(self, name: str, parse: Callable[[bytes], Any]) -> Any:
        """Return what a function makes of the content of a field, once; None without the field."""
        if (name, parse) not in self._parsed:
            content = self.sample.get(name)
            content = content.read() if isinstance(content, FieldFile) else content
            try:
                self._parsed[name, parse] = None if content is None else parse(content)
            except (ValueError, RecursionError) as error:
                what = "JSON" if parse is json.loads else "text in UTF-8"
                raise self.error(f"the field {printable(name)} is not {what}: {printable(str(error))}") from None
        return self._parsed[name, parse]

    def error(self, reason: str) -> DataError:
        return DataError(f"{self._option}: {reason}", url=self.sample.get("__url__"), key=self.sample["__key__"])


_Part = Callable[[_Look], Any]


class _Expression:
    """A text in the language of this module.

    Args:
        option: the option that has it, for messages.
    """

    def __init__(self, text: str, option: str) -> None:
        self.fields: dict[str, None] = {}
        self.contents: dict[str, None] = {}
        self.found: dict[str, bool] = {}
        self._text, self._option = text, option

    def _built(self, build: Callable[[ast.expr], _Part]) -> _Part:
        """Return the function that another one makes of the parsed text."""
        if len(self._text) > _MOST_CHARACTERS:
            raise UsageError(f"{self._option} has {len(self._text)} characters; it may have {_MOST_CHARACTERS}")
        try:
            with warnings.catch_warnings():
                # Of Python, about escapes such as \d in its texts.
                warnings.simplefilter("ignore")
                return build(ast.parse(self._text.strip(), mode="eval").body)
        except UsageError:
            raise
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise self._refused(error.msg if isinstance(error, SyntaxError) else str(error)) from None

    def _refused(self, reason: str) -> UsageError:
        bare = _STRING.sub("''", self._text)
        hint = next(advice for pattern, advice in _ADVICE.items() if re.search(pattern, bare))
        return UsageError(f"{self._option} {printable(self._text)!r}: {printable(reason)}; write {hint}")

    def _truth(self, node: ast.expr, depth: int) -> Callable[[_Look], bool]:
        """Return the function of a node that must be true or false; null is false."""
        part, shown = self._part(node, depth), ast.unparse(node)

        def truth(look: _Look) -> bool:
            value = part(look)
            if value is not None and not isinstance(value, bool):
                raise look.error(f"{shown} is {kind_of_value(value)}, and not true or false")
            return value is True

        return truth

    def _part(self, node: ast.expr, depth: int) -> _Part:
        """Return the function that gives the value of a node for a sample."""
        depth += 1
        if depth > _MOST_DEPTH:
            raise self._refused("it is nested too deeply")
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None as value):
                return lambda look: value
            case ast.Name(id=word) if word in _WORDS:
                return lambda look: _WORDS[word]
            case ast.Name(id="key"):
                return lambda look: look.sample["__key__"]
            case ast.List(elts=items) | ast.Tuple(elts=items):
                parts = [self._part(item, depth) for item in items]
                return lambda look: [part(look) for part in parts]
            case ast.BoolOp(op=op, values=values):
                truths, every = [self._truth(value, depth) for value in values], isinstance(op, ast.And)
                return lambda look: (all if every else any)(truth(look) for truth in truths)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                truth = self._truth(operand, depth)
                return lambda look: not truth(look)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._computed(operator.sub, [ast.Constant(0), operand], depth)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _COMPUTE:
                return self._computed(_COMPUTE[type(op)], [left, right], depth)
            case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _TESTS for op in ops):
                sides = [left, *others]
                tests = [self._compared(*each, depth) for each in zip(sides, map(type, ops), others, strict=False)]
                return lambda look: all(test(look) for test in tests)
            case ast.Call(func=ast.Name(id="size" | "has" | "width" | "height" as name), args=[only], keywords=[]):
                return self._measured(name, self._field(only))
            case ast.Call(func=ast.Name(id="len" | "lower" as name), args=[only], keywords=[]):
                return self._applied(len if name == "len" else str.lower, only, depth)
            case ast.Call(func=ast.Name(id="match"), args=[text, ast.Constant(value=str() as regex)], keywords=[]):
                search = self._pattern(regex).search
                return self._applied(lambda found: search(found) is not None, text, depth)
            case ast.Attribute(value=inner, attr=name):
                return self._json_value(inner, [name])
        field = self._content(node)
        return lambda look: look.parsed(field, _text_of)

    def _field(self, node: ast.expr) -> str:
        """Return the name of a field, which is written as a name, or as field('NAME')."""
        match node:
            case (
                ast.Name(id=name)
                | ast.Call(func=ast.Name(id="field"), args=[ast.Constant(value=str() as name)], keywords=[])
            ) if not is_reserved(name) and (name not in (*_WORDS, "key") or isinstance(node, ast.Call)):
                self.fields[name] = None
                return name
        raise self._refused(f"{ast.unparse(node)} cannot be used here")

    def _content(self, node: ast.expr) -> str:
        """Return the name of a field whose content is read."""
        name = self._field(node)
        self.contents[name] = None
        return name

    def _json_value(self, node: ast.expr, path: list[str]) -> _Part:
        """Return the function that gives the value at a path in a JSON field."""
        if isinstance(node, ast.Attribute):
            return self._json_value(node.value, [node.attr, *path])
        field = self._content(node)
        if any(map(is_reserved, path)):
            raise self._refused(f"{'.'.join(path)} is not a value")
        shown = ".".join((field, *path))

        def value(look: _Look) -> Any:
            found = look.parsed(field, json.loads)
            for step in path:
                if not isinstance(found, dict) or step not in found:
                    self.found.setdefault(shown, False)
                    return None
                found = found[step]
            self.found[shown] = True
            return found

        return value

    def _computed(self, compute: Callable[[Any, Any], Any], nodes: list[ast.expr], depth: int) -> _Part:
        parts = [(self._part(node, depth), ast.unparse(node)) for node in nodes]

        def computed(look: _Look) -> Any:
            values = [part(look) for part, _ in parts]
            numbers = [*map(_number, values)]
            for value, number, (_, shown) in zip(values, numbers, parts, strict=True):
                if value is not None and number is None:
                    raise look.error(f"{shown} is {kind_of_value(value)}, and not a number")
            try:
                return None if None in numbers else compute(*numbers)
            except ArithmeticError as error:
                raise look.error(str(error)) from None

        return computed

    def _compared(self, left: ast.expr, kind: type[ast.cmpop], right: ast.expr, depth: int) -> Callable[[_Look], bool]:
        first, second = self._part(left, depth), self._part(right, depth)
        shown = ast.unparse(left), ast.unparse(right)
        if kind in (ast.Eq, ast.NotEq) and not {"null", "None"}.isdisjoint(shown):
            return lambda look: (first(look) is second(look) is None) is (kind is ast.Eq)

        def compared(look: _Look) -> bool:
            values = first(look), second(look)
            try:
                return None not in values and _compare(kind, *values)
            except TypeError:
                sides = (f"{name} is {kind_of_value(value)}" for name, value in zip(shown, values, strict=True))
                raise look.error(f"{' and '.join(sides)}, which cannot be compared") from None

        return compared

    def _measured(self, name: str, field: str) -> _Part:
        if name == "has":
            return lambda look: field in look.sample
        if name == "size":
            return lambda look: len(look.sample[field]) if field in look.sample else None
        self.contents[field] = None
        return lambda look: getattr(look.parsed(field, picture_size), name, None)

    def _applied(self, function: Callable[[Any], Any], node: ast.expr, depth: int) -> _Part:
        """Return the function that gives the result for a text, and null for null."""
        part, shown = self._part(node, depth), ast.unparse(node)

        def applied(look: _Look) -> Any:
            value = part(look)
            if value is None or isinstance(value, (str, list, dict) if function is len else str):
                return None if value is None else function(value)
            raise look.error(f"{shown} is {kind_of_value(value)}, and not a text")

        return applied

    def _pattern(self, text: str) -> re.Pattern[str]:
        if re.search("[\1-\10]", text):
            raise self._refused(r"for the \b of a regular expression, write '\\b' in quotes")
        try:
            return re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise self._refused(f"{text!r} is not a regular expression: {error}") from None


class Where(_Expression):
    """A condition, which is a function of a sample.

    >>> Where("size(jpg) > 2 and cls in [3, 7]")({"__key__": "a", "jpg": b"...", "cls": b"7"})
    True

    Args:
        text: the condition, as described at the top of this module.

    Attributes:
        fields: names of the fields in it.
        contents: names of the fields whose contents it reads; of the others, it needs only the size
            or whether the sample has them.
        found: values of JSON in it, such as ``json.width`` -> True if a sample had it; those that
            no sample was asked for are not in it.

    Raises:
        UsageError: the text is not such a condition; the message has the right word for those of
            SQL, pandas and jq.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text, "where")
        self._holds = self._built(lambda node: self._truth(node, 0))

    def __call__(self, sample: Sample) -> bool:
        """Return True if the condition holds.

        Raises:
            DataError: values cannot be compared, such as a text with a number, or a field is not
                the JSON or text that the condition needs.
        """
        holds: bool = self._holds(_Look(sample, self._option))
        return holds


class SampleValue(_Expression):
    """A value in the language of conditions, which is a function of a sample.

    >>> SampleValue("json.width * 2", "--by")({"__key__": "a", "json": b'{"width": 3}'})
    6

    Args:
        text: the value, as described at the top of this module.
        option: the option that has it, for messages.

    Attributes:
        fields: names of the fields in it.
        field: the field if the text is only its name; None for other texts.

    Raises:
        UsageError: the text is not such a value, or the same for all samples.
    """

    def __init__(self, text: str, option: str) -> None:
        super().__init__(text, option)
        self.field: str | None = None
        self._value = self._built(self._of_node)

    def __call__(self, sample: Sample) -> Any:
        """Return the value: a bool, number, text, list or dict; None if it is missing or null.

        Raises:
            DataError: the value cannot be computed, or a field is not the JSON or text that it
                needs.
        """
        return self._value(_Look(sample, self._option))

    def _of_node(self, node: ast.expr) -> _Part:
        part = self._part(node, 0)
        if isinstance(node, (ast.Name, ast.Call)) and len(self.fields) == 1:
            is_named = isinstance(node, ast.Name) or (isinstance(node.func, ast.Name) and node.func.id == "field")
            self.field = next(iter(self.fields)) if is_named else None
        if not self.fields and not any(isinstance(each, ast.Name) and each.id == "key" for each in ast.walk(node)):
            raise self._refused("it is the same for all samples")
        return part


def _text_of(content: bytes) -> _FieldText:
    return _FieldText(content.decode("utf-8").strip())


def _number(value: Any) -> float | int | None:
    """Return a number, or the text of a field as a number; None for all other values."""
    if isinstance(value, _FieldText):
        return number_in(value)
    return value if kind_of_value(value) == "a number" else None


def number_in(text: str) -> float | int | None:
    """Return the number that a text is: decimal digits, with a point or an exponent; None if not.

    Whole numbers of up to 399 characters without point and exponent are exact.
    """
    if not _NUMBER.fullmatch(text):
        return None
    return int(text) if len(text) < 400 and text.lstrip("+-").isdecimal() else float(text)


def kind_of_value(value: Any) -> str:
    """Return the kind of a value for a message; only values of one kind are compared."""
    kinds = ((bool, "true or false"), ((int, float), "a number"), (str, "a text"), (list, "a list"))
    return next((kind for types, kind in kinds if isinstance(value, types)), "an object")


def _compare(kind: type[ast.cmpop], one: Any, two: Any) -> bool:
    """Compare two values, neither of which is null.

    Raises:
        TypeError: they are of two kinds, or of one that has no order.
    """
    if kind is ast.NotIn:
        return not _compare(ast.In, one, two)
    if kind is ast.In and isinstance(two, list):
        return any(_compare(ast.Eq, one, each) for each in two if each is not None)
    if kind is ast.In and isinstance(one, str) and isinstance(two, (str, dict)):
        return str(one) in two
    numbers = _number(one), _number(two)
    one, two = (one, two) if None in numbers else numbers
    if kind is ast.In or kind_of_value(one) != kind_of_value(two):
        raise TypeError
    return _TESTS[kind](one, two)
