"""Lists that watches keep up to date are what the server has, whatever becomes of the watches."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tarkit.errors import ClusterDeniedError, ClusterError, ClusterUnreachableError
from tarkit.k8s.cluster.watching import LiveList, Watching, looks

Json = dict[str, Any]


class Faulty:
    """A server whose objects change at random, and whose watches end, are cut, come too late, or are refused."""

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
@pytest.mark.parametrize("seed", range(60))
def test_a_live_list_is_what_the_server_has(seed: int, forbidden: bool) -> None:
    chance = random.Random(seed)
    server = Faulty(chance, forbidden)
    now = [0.0]

    def clock() -> float:
        now[0] += chance.choice([0.1, 20.0])
        return now[0]

    said: list[str] = []
    watching = Watching(said.append, patience=1e9, clock=clock, sleep=lambda seconds: None)
    live = LiveList(server, "jobs")  # type: ignore[arg-type]
    others = LiveList(server, "pods")  # type: ignore[arg-type]
    for number, _ in enumerate(looks([live, others], watching, 5.0)):
        if number == 20:
            server.quiet = True
        if number == 40:
            break
    for each in (live, others):
        assert {one["metadata"]["uid"]: one for one in each.things} == server.things
    back = said.count("the cluster answers again")
    assert len(said) - back in (back, back + 1), "each outage has its end"
