"""The PyTorch data set in many topologies: real ranks under gloo, and ones drawn at random, stopped
and gone on.
"""

from __future__ import annotations

import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trainshards import NEEDS_TORCH, every_key, torchrun, write_shards

pytestmark = NEEDS_TORCH


def keys(batch: list[dict[str, Any]]) -> list[str]:
    return [sample["__key__"] for sample in batch]


LOADERS = ("0", "2-fork", "4-spawn")


def read_under_gloo(urls: str, folder: Path, world: int) -> dict[str, list[list[str]]]:
    """What ranks that torchrun starts read of an epoch, by the kind of their loaders: global
    batches.
    """
    done = torchrun("trainloaders.py", world, folder, *LOADERS, urls)
    assert done.returncode == 0, done.stderr
    found = {}
    for loader in LOADERS:
        ranks = [(folder / f"{loader}-{rank}-of-{world}").read_text().splitlines() for rank in range(world)]
        found[loader] = [" ".join(parts).split() for parts in zip(*ranks, strict=True)]
    return found


def test_three_shards_under_gloo_give_the_same_batches_to_all(tmp_path: Path) -> None:
    """1, 2 and 3 ranks, each with 0, 2 and 4 workers, by fork and by spawn."""
    counts = [40, 25, 31]
    urls = write_shards(tmp_path, counts)
    found = {world: read_under_gloo(urls, tmp_path, world) for world in (1, 2, 3)}
    first = found[1]["0"]
    assert [len(batch) for batch in first] == [12] * 8
    read = sum(first, [])
    assert sorted(read) == sorted(every_key(counts))
    assert [(world, loader) for world in found for loader in LOADERS if found[world][loader] != first] == []


class Topology(NamedTuple):
    """Attributes:
    workers: of each rank.
    """

    workers: list[int]

    def read(self, urls: str, options: dict[str, Any], state: Any, stop: int) -> tuple[list[list[str]], Any]:
        """Global batches up to ``stop``, and the state then."""
        from tarkit.trainers.torch import ShardDataset

        ranks, states = [], []
        for rank, workers in enumerate(self.workers):
            loader = ShardDataset(urls, rank=rank, world=len(self.workers), **options).loader(workers)
            if state is not None:
                loader.load_state_dict(state)
            ranks.append([keys(batch) for batch in islice(loader, stop)])
            states.append(loader.state_dict())
        assert all(each == states[0] for each in states)
        return [sum(parts, []) for parts in zip(*ranks, strict=True)], states[0]


def topologies(batch: int) -> st.SearchStrategy[Topology]:
    """Of at most 4 ranks, and no more than have a sample of a batch."""
    return st.builds(Topology, st.lists(st.integers(0, 3), min_size=1, max_size=min(4, batch)))


@settings(max_examples=10, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_topologies_that_stop_and_go_on_as_others(data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(0, 25), min_size=1, max_size=5).filter(lambda counts: sum(counts) >= 12))
    lanes, share = data.draw(st.integers(1, 3)), data.draw(st.integers(2, 4))
    options = {
        "batch": lanes * share,
        "lanes": lanes,
        "turns": data.draw(st.integers(1, 3)),
        "run": data.draw(st.integers(1, 30)),
        "block": data.draw(st.integers(1, 40)),
        "seed": data.draw(st.integers(0, 99)),
        "equalize": data.draw(st.sampled_from(["drop", "pad", "repeat"])),
    }
    with tempfile.TemporaryDirectory() as folder:
        urls = write_shards(Path(folder), counts)
        whole, _ = Topology([0]).read(urls, options, None, sys.maxsize)
        stop = data.draw(st.integers(1, len(whole)))
        before, state = data.draw(topologies(lanes * share)).read(urls, options, None, stop)
        assert before == whole[:stop]
        if stop < len(whole):
            after, _ = data.draw(topologies(lanes * share)).read(urls, options, state, sys.maxsize)
            assert before + after == whole
    read = sum(whole, [])
    every = set(every_key(counts))
    assert set(read) <= every
    if options["equalize"] == "drop":
        assert len(set(read)) == len(read) > sum(counts) - options["batch"]
    else:
        assert set(read) == every and len(read) < sum(counts) + options["batch"]
