"""Shards of the files that a table names by URL, against img2dataset and a loop over urllib3."""

from __future__ import annotations

import csv
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from data import photo_shard
from environments import Settings, call, fetching_environment, img2dataset_environment, settle
from rounds import Bar, Line, MeasureError, Result, Side, Trial, compare, raw_trials, take_turns

from measures.loop import run_loop, served


def _photo(settings: Settings) -> Path:
    """One photo of the data."""
    path = settings.work / "data" / "photo.jpg"
    with tarfile.open(photo_shard(settings, 8, 35_000, 45_000).path) as archive:
        member = next(member for member in archive if member.name.endswith(".jpg"))
        file = archive.extractfile(member)
        if file is None:
            raise MeasureError("the shard of photos has no photo")
        path.write_bytes(file.read())
    return path


@contextmanager
def _served(photo: Path, percent: int, table: Path, count: int) -> Iterator[None]:
    """A table of URLs while their server runs."""
    with served("serve_pictures.py", str(photo), str(percent)) as address:
        urls = [f"{address}/{number}.jpg" for number in range(count)]
        with table.open("w", newline="") as file:
            csv.writer(file).writerows([["url"], *([url] for url in urls)])
        table.with_suffix(".txt").write_text("\n".join(urls) + "\n")
        yield


def _evidence(folder: Path) -> dict[str, int | str]:
    """What is in the shards of a folder."""
    samples = size = 0
    for path in folder.glob("*.tar"):
        with tarfile.open(path) as archive:
            for member in archive:
                if member.name.endswith(".jpg"):
                    samples, size = samples + 1, size + member.size
    return {"samples": samples, "bytes": size}


def _clocked(folder: Path, make: Callable[[], object]) -> Trial:
    """The seconds of a whole process that writes shards into a folder."""
    settle()
    begin = time.perf_counter()
    make()
    seconds = time.perf_counter() - begin
    return Trial(seconds, _evidence(folder))


def fetch_urls(settings: Settings) -> Result:
    """5,000 photos from a server on this machine."""
    count = 200 if settings.quick else 5000
    photo = _photo(settings)
    tarkit, peer = fetching_environment(settings.work), img2dataset_environment(settings.work)
    table = settings.fresh("fetch-urls") / "urls.csv"

    def by_tarkit(_: int) -> Trial:
        out = settings.fresh("fetched")
        options = ["--allow-private", "--per-host", "64", "--connections", "64", "--maxcount", "1000", "-q"]
        words = ["create", "--table", table, "--files", "url=jpg", "--columns", "url=txt", *options]
        return _clocked(out, lambda: call([tarkit.program("tarkit"), *words, "-o", out / "%06d.tar"]))

    def by_urllib3(_: int) -> Trial:
        found = run_loop(tarkit, "fetch_urllib3", [table.with_suffix(".txt")])
        return Trial(found["seconds"], found["evidence"])

    def by_img2dataset(_: int) -> Trial:
        out = settings.fresh("img2dataset")
        options = ["--input_format", "csv", "--output_format", "webdataset", "--thread_count", "64"]
        options += ["--resize_mode", "no", "--disable_all_reencoding", "True", "--number_sample_per_shard", "1000"]
        options += ["--processes_count", "2", "--url_col", "url"]
        words = [peer.program("img2dataset"), "--url_list", table, "--output_folder", out, *options]
        return _clocked(out, lambda: call(words, variables={"NO_ALBUMENTATIONS_UPDATE": "1"}))

    sides = [Side("tarkit create", by_tarkit), Side("urllib3, 64 threads, nothing kept", by_urllib3)]
    peers = [Side("tarkit create", by_tarkit), Side("img2dataset, 2 x 64 threads", by_img2dataset)]
    agree = ("samples", "bytes")
    with _served(photo, 0, table, count):
        trials = take_turns(sides, settings.repeats)
        slow = take_turns(peers, 1)
    with _served(photo, 5, table, count):
        failing = by_tarkit(0)
    lines = [
        compare(
            f"shards of {count:,} photos by URL, whole process", trials, sides[0].name, sides[1].name,
            Bar(0.8, at_least=True), agree=agree, per_second=(count, "files"),
            note="the loop is timed without start-up, writes nothing and checks nothing",
        ),
        compare(
            f"shards of {count:,} photos by URL", slow, peers[0].name, peers[1].name, Bar(3, at_least=True),
            agree=agree, per_second=(count, "files"), note="one round; pictures are not resized",
        ),
        Line(
            f"the same from a server that fails 5 % of the requests: files lost of {count:,}",
            f"tarkit create: {failing.seconds:.3g} s", "no peer", count - int(failing.evidence["samples"]), " files",
            "", Bar(0, at_least=False), "6 tries",
        ),
    ]  # fmt: skip
    return Result(lines, {**raw_trials(trials), "one round": raw_trials(slow)})
