"""What a kubelet does to ``$`` in commands, arguments and environment values, and how to prevent it.

Source of the rules: ``Expand`` in Kubernetes' third_party/forked/golang/expansion: ``$$`` becomes ``$``;
``$(NAME)`` becomes the value of NAME if the container has such a variable, and stays as it is if not;
every other ``$`` stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping


def expand(text: str, env: Mapping[str, str]) -> str:
    """``text`` as the container sees it, whose variables so far are ``env``."""
    return "".join(env.get(name, piece) if name is not None else piece for piece, name in _pieces(text))


def escape(text: str, names: Collection[str]) -> str:
    """A text that ``expand`` turns into ``text`` again, in a container with variables ``names``.

    Nothing is changed but ``$$``, and ``$(NAME)`` of a known NAME: manifests stay readable.
    """
    out = []
    at = 0
    while (dollar := text.find("$", at)) >= 0:
        out.append(text[at:dollar])
        at = dollar + 1
        following = text[at : at + 1]
        closing = text.find(")", at) if following == "(" else -1
        if following == "$" or (closing >= 0 and text[at + 1 : closing] in names):
            out.append("$$")
        elif closing >= 0:
            # Taken as a whole, and left alone: what is inside is not looked at.
            out.append(text[dollar : closing + 1])
            at = closing + 1
        else:
            out.append("$")
    return "".join(out) + text[at:]


def _pieces(text: str) -> Iterator[tuple[str, str | None]]:
    """Pieces of text; with the name, where one refers to a variable."""
    at = 0
    while (dollar := text.find("$", at)) >= 0:
        yield text[at:dollar], None
        at = dollar + 1
        following = text[at : at + 1]
        if following == "$":
            yield "$", None
            at += 1
        elif following == "(" and (closing := text.find(")", at)) >= 0:
            yield text[dollar : closing + 1], text[at + 1 : closing]
            at = closing + 1
        else:
            yield "$", None
    yield text[at:], None
