"""Functions whose keyword arguments are listed in a class: one table for several of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from typing_extensions import Unpack as Unpack
else:

    class Unpack:
        """Stands for that of typing_extensions, which only type checkers need (PEP 692)."""

        def __class_getitem__(cls, table: Any) -> Any:
            return Any


_F = TypeVar("_F", bound=Callable[..., Any])


def keywords_of(table: type) -> Callable[[_F], _F]:
    """Make a function with ``**options`` show and check them when the program runs.

    Type checkers and editors read its annotation, ``Unpack`` of a TypedDict; notebooks and
    ``help()`` ask ``inspect.signature``, which then lists every keyword.

    Args:
        table: a TypedDict or dataclass; its annotations are the keywords, without those that are
            parameters of the function.

    Returns:
        A decorator. The function then raises Python's own TypeError for a keyword that it does not
        have, with its own name and the closest keyword that it has.
    """

    def decorate(function: _F) -> _F:
        *named, rest = inspect.signature(function).parameters.values()
        known = {each.name: each for each in named}
        option = rest.replace(kind=rest.KEYWORD_ONLY, default=...)
        for name, hint in table.__annotations__.items():
            known.setdefault(name, option.replace(name=name, annotation=getattr(hint, "__forward_arg__", hint)))

        @wraps(function)
        def checked(*given: Any, **options: Any) -> Any:
            if unknown := next((name for name in options if name not in known), None):
                raise TypeError(_unexpected(function.__qualname__, unknown, known))
            return function(*given, **options)

        shown = inspect.signature(function).replace(parameters=list(known.values()))
        checked.__signature__ = shown  # type: ignore[attr-defined]
        return cast(_F, checked)

    return decorate


def _unexpected(function: str, unknown: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    names = list(known)
    shorter = [name for name in names if unknown.startswith(f"{name}_")]  # batch, for batch_size
    close = shorter or get_close_matches(unknown, names, 1)
    hint = f". Did you mean {close[0]!r}?" if close else ""
    return f"{function.removesuffix('.__init__')}() got an unexpected keyword argument {unknown!r}{hint}"
