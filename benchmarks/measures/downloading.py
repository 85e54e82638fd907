"""Reading over HTTP: tarkit's resuming, verifying read against curl, which does neither."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

from environments import Settings, call, system_program, tarkit_environment
from rounds import Bar, Result, Side, Trial, compare, raw_trials, take_turns

from measures.loop import run_loop, served


def _object(settings: Settings) -> Path:
    """A file of random bytes: 2 GB; 64 MB if small data will do."""
    size = (64 if settings.quick else 2048) << 20
    folder = settings.work / "data"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"random-{size >> 20}MiB.bin"
    if not path.exists() or path.stat().st_size != size:
        draw = random.Random(1)
        with path.open("wb") as file:
            for _ in range(size >> 20):
                file.write(draw.randbytes(1 << 20))
    return path


def download(settings: Settings) -> Result:
    """One large object from a server on this machine, thrown away by both sides."""
    path = _object(settings)
    curl = system_program("curl", "curl")
    environment = tarkit_environment(settings.work)
    folder = settings.fresh("download")

    with served("serve_file.py", str(path)) as address:
        url = f"{address}/object"

        def by_tarkit(number: int) -> Trial:
            result = run_loop(environment, "read_url", [url, *(["check"] if number == 0 else [])])
            return Trial(result["seconds"], result["evidence"])

        def by_curl(number: int) -> Trial:
            asked = [
                "--disable",
                "--silent",
                "--fail",
                "--noproxy",
                "*",
                "--write-out",
                "%{time_total} %{size_download}",
            ]
            seconds, size = call([curl, *asked, "--output", "/dev/null", url]).split()
            evidence: dict[str, int | str] = {"bytes": int(size)}
            if number == 0:
                copy = folder / "copy"
                call([curl, *asked, "--output", copy, url])
                with copy.open("rb") as file:
                    digest = hashlib.sha256()
                    while data := file.read(1 << 20):
                        digest.update(data)
                evidence["checksum"] = digest.hexdigest()
                copy.unlink()
            return Trial(float(seconds), evidence)

        sides = [Side("open_read", by_tarkit), Side("curl -o /dev/null", by_curl)]
        trials = take_turns(sides, settings.repeats)
    size = path.stat().st_size
    line = compare(
        f"read {size >> 20:,} MiB over HTTP from this machine",
        trials,
        sides[0].name,
        sides[1].name,
        Bar(0.8, at_least=True),
        agree=("bytes", "checksum"),
        per_second=(size >> 20, "MiB"),
        note="the store gives no checksum here; curl resumes nothing",
    )
    return Result([line], raw_trials(trials))
