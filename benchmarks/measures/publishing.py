"""Publishing an object to a real S3 server on this machine: tarkit's parts against s3fs.put."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

from environments import CHECKOUT, Settings, s3_environment
from rounds import Bar, Result, Side, Trial, compare, raw_trials, take_turns

from measures.loop import run_loop

# The tests start the same server.
sys.path.append(str(CHECKOUT / "tests" / "support"))
import object_servers


def _file(settings: Settings) -> Path:
    """A file of random bytes: 1 GiB; 64 MiB if small data will do."""
    size = (64 if settings.quick else 1024) << 20
    path = settings.work / "data" / f"random-{size >> 20}MiB.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.stat().st_size != size:
        draw = random.Random(1)
        with path.open("wb") as file:
            for _ in range(size >> 20):
                file.write(draw.randbytes(1 << 20))
    return path


def publish(settings: Settings) -> Result:
    """One large file to a bucket.

    The store's own length and, once, a checksum of all that it gives back.
    """
    path = _file(settings)
    environment = s3_environment(settings.work)
    weed = str(environment.program("weed"))

    with object_servers.seaweedfs(settings.fresh("seaweedfs"), weed) as endpoint:
        keys = [object_servers.ACCESS_KEY, object_servers.SECRET_KEY]

        def by(loop: str) -> Callable[[int], Trial]:
            def run(number: int) -> Trial:
                arguments = [path, endpoint, *keys, "check" if number == 0 else "no"]
                result = run_loop(environment, loop, arguments)
                return Trial(result["seconds"], result["evidence"])

            return run

        sides = [Side("open_publish", by("publish_tarkit")), Side("s3fs.put", by("publish_s3fs"))]
        trials = take_turns(sides, settings.repeats)
    settings.fresh("seaweedfs")
    size = path.stat().st_size
    line = compare(
        f"publish {size >> 20:,} MiB to SeaweedFS on this machine",
        trials,
        sides[0].name,
        sides[1].name,
        Bar(0.8, at_least=True),
        agree=("bytes", "checksum"),
        per_second=(size >> 20, "MiB"),
        note="the server and the client share the processors",
    )
    return Result([line], raw_trials(trials))
