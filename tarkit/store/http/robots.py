"""Rules of web sites for programs: robots.txt (RFC 9309) and the X-Robots-Tag of an answer."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterable

LONGEST = 512 * 1024
"""Number of bytes of a robots.txt that are read; RFC 9309 requires 500 KiB."""
_OPT_OUTS = frozenset(("noai", "noimageai", "noindex", "noimageindex", "none"))


def opts_out(values: Iterable[str]) -> bool:
    """Return True if one of the X-Robots-Tag headers excludes the object from data sets.

    A rule for any agent counts, as in ``otherbot: noai``.
    """
    rules = (rule.rpartition(":")[2] for value in values for rule in value.split(","))
    return any(rule.strip().lower() in _OPT_OUTS for rule in rules)


class Robots:
    """The rules of a robots.txt for one agent.

    Args:
        text: the file.
        agent: product token of the agent.
    """

    def __init__(self, text: str, agent: str) -> None:
        rules: dict[str, list[tuple[str, bool]]] = {}
        agents: list[str] = []
        in_rules = False
        for line in text.lstrip("\ufeff").splitlines():
            name, colon, value = line.partition("#")[0].partition(":")
            name, value = name.strip().lower(), value.strip()
            if name == "user-agent":
                agents = [value.lower()] if in_rules else [*agents, value.lower()]
                in_rules = False
            elif colon and name in ("allow", "disallow"):
                in_rules = True
                for each in agents if value else ():
                    rules.setdefault(each, []).append((urllib.parse.unquote(value), name == "allow"))
            if name == "user-agent":
                rules.setdefault(agents[-1], [])
        self._rules = rules.get(agent.lower(), rules.get("*", []))

    def allows(self, path: str) -> bool:
        """Return True if the agent may read a path, which includes the query.

        The longest pattern that fits decides; of two equal ones, the one that allows.
        """
        path = urllib.parse.unquote(path)
        fitting = [(len(pattern), allows) for pattern, allows in self._rules if _fits(pattern, path)]
        return max(fitting, default=(0, True))[1]


def _fits(pattern: str, path: str) -> bool:
    """Return True if a path begins with a pattern; ``*`` is any text, ``$`` the end.

    A regular expression could take very long for a hostile pattern.
    """
    is_whole = pattern.endswith("$")
    first, *parts = pattern.removesuffix("$").split("*")
    if not path.startswith(first):
        return False
    at = len(first)
    last = parts.pop() if parts and is_whole else None
    for part in parts:
        found = path.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    if last is not None:
        return path.endswith(last) and len(path) - len(last) >= at
    return not is_whole or at == len(path)
