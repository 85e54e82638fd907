"""The audit of a training: complete where each sample was used once, and never
where one was not.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from trainshards import copy_shard, write_shards

from tarkit.errors import CorruptRecordError, DataError, MissingInputError, StreamError, UsageError
from tarkit.trainers import auditlog
from tarkit.trainers.audit import EpochAudit, audit_folder
from tarkit.trainers.auditlog import audit_line, parsed_line
from tarkit.trainers.checkedstate import with_checksum
from tarkit.trainers.loader import EpochLoader
from tarkit.trainers.source import BatchSource

COUNTS = (13, 0, 21, 6)
State = dict[str, Any]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_shards(tmp_path_factory.mktemp("shards"), COUNTS)


class Launch:
    """The ranks of a training, which take their batches in step.

    They are killed when they are forgotten.
    """

    def __init__(self, shards: str, folder: Path, world: int = 1, state: State | None = None, **options: Any) -> None:
        options = {"batch": 6, "seed": 3, "run": 5, "audit": folder, **options}
        self.loaders = [EpochLoader(BatchSource(shards, rank=rank, world=world, **options)) for rank in range(world)]
        for loader in self.loaders:
            if state is not None:
                loader.load_state_dict(state)
        self.running = [iter(loader) for loader in self.loaders]

    def step(self, times: int = 1) -> State:
        """Take batches; the state of rank 0."""
        for _ in range(times):
            for running in self.running:
                next(running)
        return self.loaders[0].state_dict()

    def finish(self) -> None:
        """To the end of the epoch."""
        for running in self.running:
            list(running)

    def next_epoch(self) -> None:
        """Begin it."""
        self.running = [iter(loader) for loader in self.loaders]


def only(epochs: list[EpochAudit]) -> EpochAudit:
    (found,) = epochs
    return found


def lines_of(folder: Path) -> Iterator[tuple[Path, list[bytes]]]:
    for path in sorted(folder.glob("*.audit")):
        yield path, path.read_bytes().splitlines(keepends=True)


def test_a_loader_that_is_made_before_its_process_knows_its_rank(
    shards: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before torch.distributed is initialized."""
    loaders = [EpochLoader(BatchSource(shards, batch=6, audit=tmp_path)) for _ in range(2)]
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, loader in enumerate(loaders):
        monkeypatch.setenv("RANK", str(rank))
        list(loader)
    monkeypatch.setenv("RANK", "0")
    list(loader)
    assert [epoch.complete for epoch in audit_folder(str(tmp_path))] == [True, False], "half of the second one"


def test_two_epochs_of_two_ranks(shards: str, tmp_path: Path) -> None:
    training = Launch(shards, tmp_path, 2)
    training.finish()
    training.next_epoch()
    training.step(2)
    for urls in ([], [shards]):
        first, second = audit_folder(str(tmp_path), urls)
        assert first == EpochAudit(0, 40, 6, used=36, left_out=4) and first.complete
        # Rank 1 is not known to have used the second one.
        assert second == EpochAudit(1, 40, 6, used=9, left_out=4, in_hand=3, open_batches=5) and not second.complete


@pytest.mark.parametrize("worlds", [(2, 3), (2, 2), (1, 6), (3, 1)])
@pytest.mark.parametrize("more", [0, 1, 2])
def test_a_training_is_killed_and_goes_on(shards: str, tmp_path: Path, worlds: tuple[int, int], more: int) -> None:
    """What was delivered after the last state, and again, is not twice."""
    training = Launch(shards, tmp_path, worlds[0])
    state = training.step(3)
    training.step(more)
    del training
    Launch(shards, tmp_path, worlds[1], state).finish()
    found = only(audit_folder(str(tmp_path), [shards]))
    # All ranks but the first are not known to have used the last batch, but the training went on
    # behind it.
    assert (found.complete, found.used, found.again) == (True, 36, 6 * more)


def test_a_training_goes_back_twice(shards: str, tmp_path: Path) -> None:
    """The start that was undone itself passes over nothing."""
    first = Launch(shards, tmp_path, 2)
    early, late = first.step(1), first.step(3)
    Launch(shards, tmp_path, 2, late).step(1)
    third = Launch(shards, tmp_path, 3, early)
    third.step(2)
    found = only(audit_folder(str(tmp_path)))
    assert (found.problems, found.used, found.again, found.open_batches) == ([], 14, 24, 4)
    third.finish()
    assert only(audit_folder(str(tmp_path))).complete


def test_a_training_goes_back_behind_whole_epochs(shards: str, tmp_path: Path) -> None:
    """Those are undone: nothing of them is missing, and they are not complete before they were used
    again.
    """
    first = Launch(shards, tmp_path, 2)
    state = first.step(2)
    for _ in range(3):
        first.finish()
        first.next_epoch()
    first.step(1)
    again = Launch(shards, tmp_path, 1, state)
    again.finish()
    found = audit_folder(str(tmp_path), [shards])
    assert found[0] == EpochAudit(0, 40, 6, used=36, left_out=4, again=24) and found[0].complete
    undone = [EpochAudit(epoch, 40, 6, left_out=4, again=36, open_batches=6) for epoch in (1, 2)]
    assert found[1:3] == undone and not undone[0].complete
    for _ in range(3):
        again.next_epoch()
        again.finish()
    assert [epoch.complete for epoch in audit_folder(str(tmp_path))] == [True] * 4


def test_a_rank_that_begins_late_undoes_nothing(shards: str, tmp_path: Path) -> None:
    training = Launch(shards, tmp_path, 2)
    first, second = training.loaders
    for _ in range(2):
        list(first)
    for _ in range(2):
        list(second)
    assert [epoch.complete for epoch in audit_folder(str(tmp_path))] == [True, True]


@pytest.mark.parametrize(("equalize", "used", "left_out"), [("drop", 36, 4), ("pad", 40, 0), ("repeat", 40, 0)])
def test_what_fills_the_last_batch_is_not_twice(
    shards: str, tmp_path: Path, equalize: str, used: int, left_out: int
) -> None:
    Launch(shards, tmp_path, 2, equalize=equalize).finish()
    found = only(audit_folder(str(tmp_path), [shards]))
    assert (found.complete, found.used, found.left_out) == (True, used, left_out)


def test_the_batch_is_another_one_in_the_next_epoch(shards: str, tmp_path: Path) -> None:
    first = Launch(shards, tmp_path, 2)
    first.finish()
    Launch(shards, tmp_path, 3, first.loaders[0].state_dict(), batch=9).finish()
    found = audit_folder(str(tmp_path), [shards])
    assert [(each.complete, each.batches, each.used, each.left_out) for each in found] == [
        (True, 6, 36, 4),
        (True, 4, 36, 4),
    ]


def some(sample: dict[str, Any]) -> dict[str, Any] | None:
    return None if sample["__key__"] in ("0-3", "2-8", "2-9") else sample


@pytest.mark.parametrize("equalize", ["drop", "pad", "repeat"])
def test_samples_that_are_dropped_are_shown_and_what_takes_their_places_is_not_twice(
    shards: str, tmp_path: Path, equalize: str
) -> None:
    training = Launch(shards, tmp_path, 2, equalize=equalize, transform=some)
    state = training.step(2)
    training.step(2)
    Launch(shards, tmp_path, 6, state, equalize=equalize, transform=some).finish()
    found = only(audit_folder(str(tmp_path), [shards]))
    order = training.loaders[0].source.order(0)
    batches = [place[:2] for number in range(order.batches) for place in order.batch(number) if not place.filler]
    dropped = len({(0, 3), (2, 8), (2, 9)}.intersection(batches))
    assert found.complete and dropped and (found.dropped, found.used) == (dropped, len(set(batches)) - dropped)


def test_two_processes_that_are_both_the_first_rank(shards: str, tmp_path: Path) -> None:
    """Ranks that do not know that they are two: each reads everything."""
    one, other = Launch(shards, tmp_path), Launch(shards, tmp_path)
    for training in (one, other):
        training.step(2)
    for training in (one, other):
        training.finish()
    found = only(audit_folder(str(tmp_path), [shards]))
    # The first two batches of the first process were before the other one began.
    assert not found.complete and (found.again, len(found.problems), found.used) == (12, 24, 36)
    path = sorted(tmp_path.glob("*.audit"))[0]
    assert found.problems[0].startswith("twice: epoch 0, sample ") and str(Path(shards).parent) in found.problems[0]
    assert found.problems[0].count("of rank 0 of 1, worker 0") == 2 and path.name in found.problems[0]


def test_a_state_that_is_behind_what_was_delivered_leaves_a_gap(shards: str, tmp_path: Path) -> None:
    training = Launch(shards, tmp_path, 2)
    state = training.step(2)
    order = training.loaders[0].source.order(0)
    Launch(shards, tmp_path, 3, with_checksum({**state, "next_batch": 4})).step(1)
    found = only(audit_folder(str(tmp_path)))
    missing = [place for number in (2, 3) for place in order.batch(number)]
    for place, problem in zip(missing, found.problems, strict=True):
        assert problem.startswith(f"missing: epoch 0, sample {place.sample} of s-{place.shard}.tar: batch ")
    assert found.open_batches == 2, "the last but one is not known to be used by two ranks"


def test_the_files_of_a_rank_are_missing(shards: str, tmp_path: Path) -> None:
    training = Launch(shards, tmp_path, 2)
    training.finish()
    (lost,) = tmp_path.glob("rank-00001-*")
    lost.unlink()
    assert only(audit_folder(str(tmp_path))) == EpochAudit(0, 40, 6, used=18, left_out=4, open_batches=6)
    Launch(shards, tmp_path, 2, training.loaders[0].state_dict()).step(1)
    first, _ = audit_folder(str(tmp_path))
    assert len(first.problems) == 18 and not first.complete


def test_random_trainings(shards: str, tmp_path: Path) -> None:
    """Whatever is killed, goes on and goes back: complete.

    A batch less that was used: not.
    """
    for seed in range(12):
        draw, folder = random.Random(seed), tmp_path / str(seed)
        states: list[State | None] = [None]
        for _ in range(draw.randint(1, 4)):
            state = draw.choice(states[-3:])
            training = Launch(shards, folder, draw.choice([1, 2, 3, 6]), state)
            for _ in range(draw.randint(1, 5)):
                try:
                    states.append(training.step())
                except StopIteration:
                    training.next_epoch()
        before = set(folder.glob("*.audit"))
        training = Launch(shards, folder, draw.choice([1, 2, 3]), states[-1])
        training.finish()
        epochs = audit_folder(str(folder))
        assert all(epoch.complete and epoch.used == 36 for epoch in epochs), seed
        path, lines = next(found for found in lines_of(folder) if found[0] not in before)
        batches = [line for line in lines if line.startswith(b'{"batch"')]
        lines.remove(draw.choice(batches))
        path.write_bytes(b"".join(lines))
        assert not all(epoch.complete for epoch in audit_folder(str(folder)))


def test_every_cut_and_every_flipped_byte(shards: str, tmp_path: Path) -> None:
    Launch(shards.replace("{0..3}", "0"), tmp_path / "a", batch=12, lanes=1).finish()
    ((path, _),) = lines_of(tmp_path / "a")
    whole = path.read_bytes()
    assert only(audit_folder(str(tmp_path / "a"))).complete
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        try:
            assert not only(audit_folder(str(tmp_path / "a"))).complete
        except MissingInputError:
            assert whole[:cut].count(b"\n") < 2
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        try:
            found = only(audit_folder(str(tmp_path / "a")))
            assert at == len(whole) - 1 and not found.complete, "the last line lost its end: it is cut"
        except CorruptRecordError as error:
            assert error.offset is not None and whole[: error.offset].count(b"\n") <= whole[:at].count(b"\n")


def forged(folder: Path, at: list[int], **fields: Any) -> None:
    """Write other values into the line of a batch."""
    for path, lines in lines_of(folder):
        found = [parsed_line(line, "", 0) for line in lines]
        changed = [{**line, **fields} if line.get("batch") == at else line for line in found]
        path.write_bytes(b"".join(map(audit_line, changed)))


def test_an_audit_of_an_earlier_version_of_the_order_is_refused(shards: str, tmp_path: Path) -> None:
    Launch(shards, tmp_path, batch=2).finish()
    for path, lines in lines_of(tmp_path):
        found = [parsed_line(line, "", 0) for line in lines]
        earlier = [{**line, "begin": {**line["begin"], "version": 1}} if "begin" in line else line for line in found]
        path.write_bytes(b"".join(map(audit_line, earlier)))
    with pytest.raises(
        DataError, match="this audit is of version 1 of the order, and here it is 3; use the version of"
    ):
        audit_folder(str(tmp_path))


def test_samples_and_keys_that_are_others(shards: str, tmp_path: Path) -> None:
    training = Launch(shards, tmp_path, batch=2)
    training.finish()
    order = training.loaders[0].source.order(0)
    (_, second), (third, _) = order.batch(4), order.batch(5)
    forged(tmp_path, [0, 4], samples=f"{third.shard}.{third.sample} {second.shard}.{second.sample}")
    found = only(audit_folder(str(tmp_path)))
    kinds = [problem.partition(":")[0] for problem in found.problems]
    assert kinds == ["wrong", "twice"] and found.used == 39
    assert f"it has sample {third.sample} of s-{third.shard}.tar where the order has sample " in found.problems[0]
    (key,) = [each for each in only(audit_folder(str(tmp_path), [shards])).problems if "another key" in each]
    assert f"what was delivered as sample {third.sample} of {shards.replace('{0..3}', str(third.shard))} has" in key
    forged(tmp_path, [0, 4], samples="9.0 0.99 2.3", keys="0" * 24)
    assert len(only(audit_folder(str(tmp_path), [shards])).problems) > 3
    forged(tmp_path, [0, 19], batch=[0, 20])
    assert any("batch 20" in problem for problem in only(audit_folder(str(tmp_path))).problems)


def test_an_epoch_that_was_left_out(shards: str, tmp_path: Path) -> None:
    training = Launch(shards, tmp_path)
    training.finish()
    training.loaders[0].set_epoch(2)
    training.next_epoch()
    training.finish()
    training.loaders[0].set_epoch(10**12)
    training.next_epoch()
    training.finish()
    first, second, third, fourth, last = audit_folder(str(tmp_path))
    assert [each.complete for each in (first, third, last)] == [True] * 3 and last.epoch == 10**12
    assert second == EpochAudit(1, 40, 6, problems=["missing: no process has begun epoch 1"])
    assert fourth.problems == ["missing: no process has begun epochs 3 to 999999999999"]


def test_a_loop_that_is_left_has_used_its_batch_if_it_says_so(shards: str, tmp_path: Path) -> None:
    for says in (True, False):
        folder = tmp_path / str(says)
        training = Launch(shards, folder)
        next(training.running[0])
        if says:
            training.loaders[0].used()
            training.loaders[0].used()
        del training
        found = only(audit_folder(str(folder)))
        assert (found.used, found.in_hand) == ((6, 0) if says else (0, 6))


@pytest.mark.parametrize("change", [{"seed": 4}, {"run": 6}, {"batch": 12}, {"turns": 2}])
def test_one_folder_is_for_one_training(shards: str, tmp_path: Path, change: dict[str, int]) -> None:
    """It is not begun by another one, and one whose files come there later is not passed over."""
    first = Launch(shards, tmp_path)
    for _ in range(2):
        first.finish()
        first.next_epoch()
    ((name, value),) = change.items()
    what = f"{name} is {value}, and was { {'seed': 3, 'run': 5, 'batch': 6, 'turns': 1}[name] }"
    with pytest.raises(UsageError) as caught:
        Launch(shards, tmp_path, **change).step()
    hint = "use a new folder for each training, or remove the files of the other one"
    assert str(caught.value) == f"{tmp_path} has the audit of another training: {what}; {hint}"
    assert len(list(tmp_path.glob("*.audit"))) == 1
    (tmp_path / "training.json").unlink()
    Launch(shards, tmp_path, **change).finish()
    begun, other = sorted(tmp_path.glob("*.audit"), key=lambda path: path.stat().st_mtime)
    with pytest.raises(DataError) as damaged:
        audit_folder(str(tmp_path))
    hint = "one folder is for one training: take the files of the other one out"
    reason = f"this is of another training than {begun.name}: {what}; {hint}"
    assert damaged.value.url == str(other) and str(damaged.value).endswith(f": {reason}")


def test_a_folder_whose_first_state_is_damaged_is_not_used(shards: str, tmp_path: Path) -> None:
    Launch(shards, tmp_path).step()
    whole = (tmp_path / "training.json").read_text()
    for text in ("", "[" * 10**5, whole.replace('"seed": 3', '"seed": 4'), "{}"):
        (tmp_path / "training.json").write_text(text)
        with pytest.raises(
            DataError, match=r"training\.json: the first state cannot be read: .*; use a new folder for"
        ):
            Launch(shards, tmp_path).step()
    (tmp_path / "training.json").write_text(whole)
    Launch(shards, tmp_path).finish()
    assert only(audit_folder(str(tmp_path))).complete


def test_what_is_not_an_audit(shards: str, tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="no audit of a training is in this folder"):
        audit_folder(str(tmp_path))
    Launch(shards, tmp_path).step()
    with pytest.raises(UsageError, match=r"^these are not the shards of the training: s-3\.tar is not among them$"):
        audit_folder(str(tmp_path), [shards.replace("{0..3}", "{0..2}")])
    with pytest.raises(UsageError, match=r"the shards of the training: no epoch has read .*s-0\.tar$"):
        audit_folder(str(tmp_path), [shards, shards.replace("{0..3}", "0")])
    (listed,) = tmp_path.glob("shards-*.json")
    fewer = json.loads(listed.read_text())
    fewer["shards"][0][1] -= 1
    for text in ("{}", "[", '{"shards": [1]}', json.dumps(fewer)):
        listed.write_text(text)
        with pytest.raises(DataError, match="the list of shards cannot be read"):
            audit_folder(str(tmp_path))
    (tmp_path / "x.audit").write_bytes(audit_line({"audit": 2}))
    with pytest.raises(DataError, match=r"x\.audit: this is not an audit of version 1"):
        list(auditlog.read_lines(str(tmp_path / "x.audit")))
    for text in (b"[1]", b"null", b"x", b"[" * 10**5, b'{"audit":' * 10**5, b'{"audit":1%s}' % (b"0" * 5000), b"\xff"):
        (tmp_path / "x.audit").write_bytes(b"%s\t%08x\n" % (text, crc32(text)))
        with pytest.raises(
            CorruptRecordError, match=r"x\.audit, offset 0: line 1 is damaged: its JSON cannot|it is not"
        ):
            list(auditlog.read_lines(str(tmp_path / "x.audit")))


def test_an_index_that_is_gone(shards: str, tmp_path: Path) -> None:
    for shard in range(4):
        copy_shard(shards.replace("{0..3}", str(shard)), tmp_path)
    copy = f"{tmp_path}/s-{{0..3}}.tar"
    Launch(copy, tmp_path / "audit").finish()
    manifest = [{"url": f"s-{shard}.tar", "nsamples": count} for shard, count in enumerate(COUNTS)]
    (tmp_path / "all.json").write_text(json.dumps({"wids_version": 1, "shardlist": manifest}))
    assert only(audit_folder(str(tmp_path / "audit"), [str(tmp_path / "all.json")])).complete
    (tmp_path / "s-2.idx").unlink()
    with pytest.raises(UsageError, match=r"s-2\.tar has no index .*s-2\.idx: make it by tarkit index"):
        audit_folder(str(tmp_path / "audit"), [str(tmp_path / "all.json")])


def test_an_audit_that_cannot_be_written_ends_the_training(
    shards: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StreamError, match=r"file: the audit cannot be written: Not a directory|File exists"):
        Launch(shards, tmp_path / "file").step()
    training = Launch(shards, tmp_path / "full")
    training.step()
    monkeypatch.setattr(auditlog.os, "write", lambda file, data: 5)
    with pytest.raises(StreamError, match="full: the audit cannot be written: only a part of a line was written"):
        training.step()
    with pytest.raises(UsageError, match=r"audit is s3://b/a; it must be a folder of a file system"):
        Launch(shards, "s3://b/a")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^audit= is not for service="):
        BatchSource(shards, batch=6, service="127.0.0.1:1", audit=tmp_path)
