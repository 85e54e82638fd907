"""Lists that watches keep up to date are what the server has, whatever becomes of the watches."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tarkit.errors import ClusterDeniedError, ClusterError, ClusterUnreachableError
from tarkit.k8s.cluster.watching import Watching, watched

Json = dict[str, Any]


class Faulty:
    """A server whose objects change at random, and whose watches end, are cut, come too late, or
    are refused.
    """

    def __init__(self, chance: random.Random, forbidden: bool) -> None:
        self.chance, self.forbidden = chance, forbidden
        self.things: dict[str, Json] = {}
        self.log: list[tuple[str, Json]] = []
        self.quiet = False

    def change(self) -> None:
        version = str(len(self.log) + 1)
        uid = f"u{self.chance.randrange(6)}"
        known = uid in self.things
        thing = {"metadata": {"name": uid, "uid": uid, "resourceVersion": version}, "status": {"n": version}}
        if known and self.chance.random() < 0.4:
            del self.things[uid]
            self.log.append(("DELETED", thing))
        else:
            self.things[uid] = thing
            self.log.append(("MODIFIED" if known else "ADDED", thing))

    def happen(self) -> None:
        for _ in range(0 if self.quiet else self.chance.randrange(4)):
            self.change()

    def list_at(self, kind: str, *, labels: str = "", fields: str = "") -> tuple[list[Json], str]:
        self.happen()
        if not self.quiet and self.chance.random() < 0.2:
            raise ClusterUnreachableError("gone")
        return list(self.things.values()), str(len(self.log))

    def watch(self, kind: str, *, version: str, seconds: float, **selectors: str) -> Iterator[tuple[str, Json]]:
        fate = "end" if self.quiet else self.chance.choice(["end", "cut", "error", "gone", "410"])
        if self.forbidden:
            raise ClusterDeniedError("you may not watch", 403)
        if fate == "gone":
            raise ClusterUnreachableError("gone")
        if fate == "410":
            raise ClusterError("too old", 410)
        self.happen()
        return self._events(int(version), fate)

    def _events(self, version: int, fate: str) -> Iterator[tuple[str, Json]]:
        sent = self.log[version:]
        yield from sent[: self.chance.randrange(len(sent) + 1) if fate != "end" else len(sent)]
        if fate == "end" and sent:
            yield "BOOKMARK", {"metadata": {"resourceVersion": str(version + len(sent))}}
        if fate == "cut":
            raise ClusterUnreachableError("cut")
        if fate == "error":
            yield "ERROR", {"kind": "Status", "code": 410}


@pytest.mark.parametrize("forbidden", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_what_is_watched_is_what_the_server_has(seed: int, forbidden: bool) -> None:
    chance = random.Random(seed)
    server = Faulty(chance, forbidden)
    now = [0.0]

    def clock() -> float:
        now[0] += chance.choice([0.1, 20.0])
        return now[0]

    said: list[str] = []
    watching = Watching(said.append, patience=1e9, clock=clock, sleep=lambda seconds: None)
    looks = watched(server, "jobs", watching, 5.0)  # type: ignore[arg-type]
    for _ in range(20):
        next(looks)
    server.quiet = True
    known = [next(looks) for _ in range(20)][-1]
    assert {one["metadata"]["uid"]: one for one in known} == server.things
    assert said.count("the cluster answers again") * 2 == len(said), "each outage has its end"
