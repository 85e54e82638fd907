"""The state of a real service that was killed while it worked, and what can happen to its files
afterwards.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shardservice import Caller, Service

SHARDS = 400
SIZED = ("--dataset", f"iris={SHARDS * 2}", "--records-per-shard", "2")
Files = dict[str, bytes]


@dataclass(frozen=True)
class Killed:
    """Attributes:
    files: name -> bytes, after the kill.
    older: the same files, earlier in the run.
    acknowledged: first records of the shards whose reports were answered.
    last: the last token that was answered.
    """

    files: Files
    older: Files
    acknowledged: frozenset[int]
    last: int


def killed_service(folder: Path, reports: int = 60) -> Killed:
    """Work with a service, kill it in the middle of a call, and take its files."""
    state = folder / "state"
    state.mkdir(parents=True)
    acknowledged: set[int] = set()
    older: Files = {}
    with Service(folder, *SIZED, "--state", str(state / "iris")) as service, Caller(service.address) as call:
        held = call("Exchange", worker="a", want=3).leases
        for number in range(reports):
            if number == reports // 2:
                older = files_of(state)
            done = held.pop(0)
            reply = call("Exchange", worker="a", want=1, reports=[{"token": done.token}])
            acknowledged.add(done.start)
            held.append(reply.leases[0])
        last = max(lease.token for lease in held)
        call.future("Exchange", worker="b", want=5)
        service.kill()
    return Killed(files_of(state), older, frozenset(acknowledged), last)


def files_of(folder: Path) -> Files:
    """The files that are the state; the others are of writes that were not finished."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if not path.name.startswith(".")}


def damaged(killed: Killed, other: Files, flips: int, cuts: int) -> Iterator[tuple[str, Files]]:
    """What happened to one file, and all files after it.

    Args:
        other: of another run.
        flips, cuts: how many for each file.
    """
    chance = random.Random(7)
    for name, whole in killed.files.items():
        rest = {key: value for key, value in killed.files.items() if key != name}
        yield f"{name} removed", rest
        for source, files in (("an older copy", killed.older), ("another run", other)):
            if name in files and files[name] != whole:
                yield f"{name} replaced by {source}", rest | {name: files[name]}
        for tail in (b"\0" * 4096, whole[-300:], b"\n"):
            yield f"{name} with {len(tail)} bytes after its end", rest | {name: whole + tail}
        for at in range(0, len(whole), 4096):
            yield f"{name} without the block at {at}", rest | {name: whole[:at] + bytes(4096) + whole[at + 4096 :]}
        for at in {0, len(whole) - 1, *chance.sample(range(len(whole)), min(cuts, len(whole)))}:
            yield f"{name} cut to {at}", rest | {name: whole[:at]}
        used = [at for at, byte in enumerate(whole) if byte]
        for number in range(flips):
            # The last bytes are those of the last answers.
            at = chance.choice(used[-2000:] if number % 2 else used)
            flipped = bytearray(whole)
            flipped[at] ^= 1 << chance.randrange(8)
            yield f"{name} flipped at {at}", rest | {name: bytes(flipped)}
