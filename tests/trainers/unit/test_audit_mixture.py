"""The audit of a training on streams: each sample once a pass, and the shares of the streams."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tarkit.cli.tarkit import main
from trainshards import write_shards

from tarkit.errors import DataError, UsageError
from tarkit.samples.tarwriter import TarWriter
from tarkit.trainers.audit import EpochAudit, audit_folder
from tarkit.trainers.auditlog import audit_line, parsed_line
from tarkit.trainers.checkedstate import with_checksum
from tarkit.trainers.loader import EpochLoader
from tarkit.trainers.source import BatchSource
from tarkit.trainers.streams import Stream

COUNTS = {"a": (25, 16), "b": (7, 4), "c": (30,)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("streams")
    for name, counts in COUNTS.items():
        write_shards(found, counts, name=name)
    return found


class Training:
    """Ranks of a training on streams, which take their batches in step."""

    def __init__(self, folder: Path, logs: Path, world: int = 1, state: Any = None, **amounts: float) -> None:
        amounts = amounts or {"a": 0.7, "b": 0.3}
        streams = [Stream(f"{folder}/{name}-*.tar", name=name, proportion=value) for name, value in amounts.items()]
        options = {"batch": 6, "seed": 3, "run": 5, "epoch_size": 30, "audit": logs}
        self.loaders = [EpochLoader(BatchSource(streams, rank=rank, world=world, **options)) for rank in range(world)]  # type: ignore[arg-type]
        for loader in self.loaders if state else ():
            loader.load_state_dict(state)

    def epochs(self, number: int) -> Any:
        for _ in range(number):
            for _ in zip(*self.loaders, strict=True):
                pass
        return self.loaders[0].state_dict()

    def part(self, batches: int) -> Any:
        running = [iter(loader) for loader in self.loaders]
        for _ in range(batches):
            for each in running:
                next(each)
        return self.loaders[0].state_dict()


def shards(folder: Path, names: str) -> list[str]:
    return [f"{folder}/{name}-{number}.tar" for name in names for number in range(len(COUNTS[name]))]


def test_epochs_that_are_killed_and_go_on(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A sample of the stream of 11 may come twice an epoch, and not twice in a pass."""
    state = Training(folder, tmp_path, 2).epochs(3)
    state = Training(folder, tmp_path, 3, state).part(2)
    Training(folder, tmp_path, 2, state).epochs(1)
    for urls in ([], shards(folder, "ab")):
        epochs = audit_folder(str(tmp_path), urls)
        assert [epoch.complete for epoch in epochs] == [True] * 4
        assert epochs[0] == EpochAudit(0, 30, 5, used=30, streams={"a": 21, "b": 9})
    assert sum(epoch.streams["b"] for epoch in epochs) > 33
    assert main(["audit", str(tmp_path)]) == 0
    assert capfd.readouterr().out.splitlines()[0] == (
        "epoch 0: complete: 30 of 30 samples used, of streams a 21 (70.00%), b 9 (30.00%)"
    )


def test_amounts_change_between_epochs(folder: Path, tmp_path: Path) -> None:
    """No sample comes again before its pass ends, also where the amounts change."""
    state = Training(folder, tmp_path).epochs(2)
    state = Training(folder, tmp_path, 2, state, a=0.2, b=0.2, c=0.6).epochs(2)
    Training(folder, tmp_path, 1, state, a=0, b=0.5, c=0.5).epochs(1)
    epochs = audit_folder(str(tmp_path))
    assert [epoch.complete for epoch in epochs] == [True] * 5
    shares = [epoch.streams for epoch in epochs]
    assert shares[2] == {"a": 6, "b": 6, "c": 18} and shares[4] == {"b": 15, "c": 15}
    assert audit_folder(str(tmp_path), shards(folder, "abc")) == epochs
    with pytest.raises(UsageError, match=r"^these are not the shards of the training: c-0\.tar is not among them$"):
        audit_folder(str(tmp_path), shards(folder, "ab"))


def test_a_stream_is_added_whose_shards_have_the_names_of_others(folder: Path, tmp_path: Path) -> None:
    """Each epoch is compared with the shards that it has read, also where a key is another one."""
    paths = []
    for name in "xy":
        (tmp_path / name).mkdir()
        paths.append(write_shards(tmp_path / name, (9, 8), name="s"))
    streams = [Stream(path, name=name) for name, path in zip("xy", paths, strict=True)]
    logs = tmp_path / "logs"
    options: dict[str, Any] = {"batch": 4, "audit": logs, "where": "key != '1-3'"}
    first = EpochLoader(BatchSource(streams[:1], **options))
    list(first)
    then = EpochLoader(BatchSource(streams[::-1], **options))
    then.load_state_dict(first.state_dict())
    list(then)
    epochs = audit_folder(str(logs), paths)
    assert [epoch.streams for epoch in epochs] == [{"x": 16}, {"y": 16, "x": 16}]
    assert all(epoch.complete for epoch in epochs)
    other = write_shards(tmp_path / "y", (9, 8), name="s", fields=lambda shard, number: {"cls": 7, "txt": "more"})
    assert audit_folder(str(logs), paths) == epochs
    with TarWriter(str(tmp_path / "y" / "s-0.tar"), index=True) as writer:
        for number in range(9):
            writer.write({"__key__": f"other-{number}", "cls": 1})
    first_epoch, second = audit_folder(str(logs), [paths[0], other])
    assert first_epoch == epochs[0] and len(second.problems) == 9
    assert all(str(tmp_path / "y" / "s-0.tar") in problem for problem in second.problems)
    with pytest.raises(UsageError, match=r"^these are not the shards of the training: no epoch has read .*a-0\.tar$"):
        audit_folder(str(logs), [*paths, f"{folder}/a-0.tar"])


def changed(logs: Path, change: Any) -> None:
    """Change the lines of batches of a log."""
    (path,) = logs.glob("*.audit")
    lines = [parsed_line(line, str(path), 0) for line in path.read_bytes().splitlines(keepends=True)]
    for line in lines:
        if "batch" in line:
            change(line)
    path.write_bytes(b"".join(map(audit_line, lines)))


def test_a_sample_that_comes_twice_in_a_pass(folder: Path, tmp_path: Path) -> None:
    Training(folder, tmp_path).epochs(2)

    def change(line: dict[str, Any]) -> None:
        if line["batch"] == [1, 2]:
            words = line["samples"].split()
            words[-1] = next(word for word in words[:-1] if (word[0] in "01") == (words[-1][0] in "01"))
            line["samples"] = " ".join(words)

    changed(tmp_path, change)
    first, second = audit_folder(str(tmp_path))
    assert first.complete and not second.complete
    assert sorted(problem.partition(":")[0] for problem in second.problems) == ["twice", "wrong"]


def test_epochs_that_do_not_go_on_where_the_stream_stopped(folder: Path, tmp_path: Path) -> None:
    """Two epochs, each of which claims to begin with the first sample of each stream."""
    Training(folder, tmp_path).epochs(1)
    (path,) = tmp_path.glob("*.audit")
    lines = [parsed_line(line, str(path), 0) for line in path.read_bytes().splitlines(keepends=True)]
    again = json.loads(json.dumps(lines[1:]))
    for line in again:
        if "begin" in line:
            line["begin"] = with_checksum({**line["begin"], "epoch": 1})
        for name in {"batch", "used"} & {*line}:
            line[name][0] = 1
    path.write_bytes(b"".join(map(audit_line, lines + again)))
    first, second = audit_folder(str(tmp_path))
    assert first.complete and not second.complete
    assert "twice" in {problem.partition(":")[0] for problem in second.problems}


def test_audits_of_streams_and_of_shards_are_of_two_trainings(folder: Path, tmp_path: Path) -> None:
    Training(folder, tmp_path).epochs(1)
    plain = EpochLoader(BatchSource(f"{folder}/a-0.tar", batch=6, seed=3, run=5, audit=tmp_path))
    with pytest.raises(UsageError, match="has the audit of another training: data set is 'shards', and was 'streams';"):
        list(plain)
    (tmp_path / "training.json").unlink()
    list(plain)
    with pytest.raises(DataError, match=r"this is of another training than rank-.*: data set is '"):
        audit_folder(str(tmp_path))


def test_a_run_with_other_amounts_does_not_begin_in_the_folder(folder: Path, tmp_path: Path) -> None:
    """Its first epoch would undo all epochs of the other run."""
    state = Training(folder, tmp_path).epochs(3)
    for amounts, what in (
        ({"a": 0.5, "b": 0.5}, r"amount of stream 'a' is 'p0\.5', and was 'p0\.7'"),
        ({"a": 0.7, "b": 0.3, "c": 1.0}, r"streams is \['a', 'b', 'c'\], and was \['a', 'b'\]"),
    ):
        with pytest.raises(UsageError, match=f"has the audit of another training: {what}; use a new folder for each"):
            Training(folder, tmp_path, **amounts).epochs(1)
    assert [epoch.complete for epoch in audit_folder(str(tmp_path))] == [True] * 3
    Training(folder, tmp_path, 1, state, a=0.5, b=0.5).epochs(1)
    assert [epoch.complete for epoch in audit_folder(str(tmp_path))] == [True] * 4
    (tmp_path / "training.json").unlink()
    Training(folder, tmp_path, a=0.5, b=0.5).epochs(1)
    assert main(["audit", str(tmp_path)]) == 65


def test_the_same_run_begins_again_and_ends_earlier(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The later epochs of the first time are not left out of the report."""
    Training(folder, tmp_path).epochs(3)
    Training(folder, tmp_path).epochs(1)
    assert main(["audit", str(tmp_path)]) == 1
    first, *others = capfd.readouterr().out.splitlines()
    assert first.startswith("epoch 0: complete: 30 of 30 samples used, 30 undone by a later start, of streams a 21")
    assert others == [f"epoch {n}: not complete: 0 of 30 samples used, 30 undone by a later start" for n in (1, 2)]
