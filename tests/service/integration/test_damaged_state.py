"""The files of a service that was killed, damaged: refused, or nothing that was acknowledged is lost."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from shardservice import Caller
from statedamage import SHARDS, SIZED, Files, Killed, damaged, files_of, killed_service

from tarkit.errors import DataError
from tarkit.service.journal import Journal
from tarkit.service.leases import Lease, LeaseRules
from tarkit.service.ledger import Ledger

pytest.importorskip("grpc", reason="the shard service needs grpcio")


def put(folder: Path, files: Files) -> None:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def loaded(folder: Path, files: Files) -> Ledger | DataError | None:
    """What a service finds: a ledger, none, or why it is refused, in one line; then the files are as they were."""
    put(folder, files)
    try:
        with closing(Journal(str(folder / "iris"))) as journal:
            return next(iter(journal.load(LeaseRules(), 0.0)), None)
    except DataError as error:
        assert "\n" not in str(error) and str(folder / "iris") in str(error)
        assert files_of(folder) == files, "a file was changed that was refused"
        return error


def loses(killed: Killed, ledger: Ledger | None) -> bool:
    """Whether what was acknowledged is handed out again, or a token is."""
    if ledger is None or ledger.last_token < killed.last:
        return True
    for worker in ledger.workers():
        ledger.release(worker)
    again: set[int] = set()
    while isinstance(lease := ledger.lease("w", 0.0), Lease):
        again.add(lease.shard.start)
    return bool(again & killed.acknowledged)


def test_each_damage_after_a_kill_is_refused_or_loses_nothing(tmp_path: Path) -> None:
    killed, other = killed_service(tmp_path / "killed"), killed_service(tmp_path / "other", reports=2)
    whole = loaded(tmp_path / "whole", killed.files)
    assert isinstance(whole, Ledger) and not loses(killed, whole)
    refused, lost = 0, []
    for number, (damage, files) in enumerate(damaged(killed, other.files, flips=20, cuts=10)):
        found = loaded(tmp_path / str(number), files)
        if isinstance(found, DataError):
            refused += 1
        elif loses(killed, found):
            lost.append(damage)
    assert lost == []
    assert refused > 40


@pytest.mark.elasticdl
@pytest.mark.slow
def test_a_service_that_is_started_after_each_damage(tmp_path: Path) -> None:
    """As before, of more damages, by the program itself: exit code 65 and one line, or it goes on."""
    killed, other = killed_service(tmp_path / "killed"), killed_service(tmp_path / "other", reports=2)
    ends = {"refused": 0, "went on": 0}
    for number, (damage, files) in enumerate(damaged(killed, other.files, flips=70, cuts=50)):
        folder = tmp_path / str(number)
        put(folder, files)
        ready = tmp_path / f"{number}.ready"
        command = [sys.executable, "-m", "tarkit.cli.tarkit", "serve", *SIZED, "--state", str(folder / "iris")]
        command += ["--listen", "127.0.0.1:0", "--ready-file", str(ready)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            while process.poll() is None and not ready.exists():
                time.sleep(0.01)
            if ready.exists():
                with Caller(ready.read_text().split()[0]) as call:
                    leases = call("Exchange", worker="z", want=SHARDS).leases
                process.kill()
            out, err = process.communicate()
        if ready.exists():
            ends["went on"] += 1
            assert not {lease.start for lease in leases} & killed.acknowledged, f"{damage}: handed out again"
            assert min(lease.token for lease in leases) > killed.last, f"{damage}: a token was given twice"
        else:
            ends["refused"] += 1
            assert (process.returncode, out) == (65, ""), f"{damage}: {err}"
            assert err.count("\n") == 1 and str(folder / "iris") in err and "put it and iris-ack back" in err
            assert files_of(folder) == files
    sys.stderr.write(f"damaged states: {ends}\n")
    assert sum(ends.values()) >= 200 and all(ends.values())
