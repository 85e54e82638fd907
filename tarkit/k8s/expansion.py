"""What a kubelet does to ``$`` in commands, arguments and environment values, and how to prevent it.

Source of the rules: ``Expand`` in Kubernetes' third_party/forked/golang/expansion: ``$$`` becomes ``$``;
``$(NAME)`` becomes the value of NAME if the container has such a variable, and stays as it is if not;
every other ``$`` stays.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

_EXPANDED = re.compile(r"\$\$|\$\(([^)]*)\)")
_AMBIGUOUS = re.compile(r"\$(?=\$)|\$\(([^)]*)\)")


def substitute(text: str, env: Mapping[str, str]) -> str:
    """``text`` as the container sees it, whose variables so far are ``env``."""
    return _EXPANDED.sub(lambda found: "$" if found[1] is None else env.get(found[1], found[0]), text)


def escape(text: str, names: Collection[str]) -> str:
    """A text that ``substitute`` turns into ``text`` again, in a container with variables ``names``.

    Nothing is changed but ``$$``, and ``$(NAME)`` of a known NAME: manifests stay readable.
    """
    return _AMBIGUOUS.sub(lambda found: f"${found[0]}" if found[1] is None or found[1] in names else found[0], text)
