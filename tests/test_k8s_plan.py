"""What a plan says of time and money: by hand, by measuring, and as people read it."""

from __future__ import annotations

import importlib.metadata
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

import tarkit
from tarkit.errors import MissingInputError, TarkitError, UsageError
from tarkit.k8s.durations import in_words
from tarkit.k8s.plan.estimate import (
    Measured,
    Price,
    Spread,
    arguments_for,
    byte_size,
    estimate,
    measure,
    plan_lines,
    waves,
)
from tarkit.k8s.plan.shardlist import bytes_of, spread
from tarkit.k8s.plan.sliceplan import plan_shards
from tarkit.runs.work import Work
from tarkit.store import waits

# Estimates


@pytest.mark.parametrize(
    ("n", "total", "w", "p", "rate", "expected"),
    [
        # 10 slices of 90 s in 5 waves of 2: 5 x (90 + 10) s. Held: 10 x 100 s.
        (10, None, 10, 2, {"seconds_per_shard": 90.0}, (5, 90.0, 500.0, 1000 / 3600)),
        # 1000 shards of 2 s in 100 slices of 20 s, all at once: 20 + 10 s; 10 pods a second need 10 s.
        (1000, None, 100, 100, {"seconds_per_shard": 2.0}, (1, 20.0, 30.0, 3000 / 3600)),
        # 10,000 slices of nothing, 1000 at once: 10 x 10 s; but the controllers take 1000 s.
        (10_000, None, 10_000, 1000, {"seconds_per_shard": 0.0}, (10, 0.0, 1000.0, 100_000 / 3600)),
        # 3 GB at 40 s/GB in 4 slices of 30 s, 3 at once: 2 x 40 s. Bytes win over shards.
        (8, 3 * 10**9, 4, 3, {"seconds_per_byte": 40e-9, "seconds_per_shard": 1.0}, (2, 30.0, 80.0, 160 / 3600)),
        # Bytes are not known: by shards, 8 of 1 s.
        (8, None, 4, 3, {"seconds_per_byte": 40e-9, "seconds_per_shard": 1.0}, (2, 2.0, 24.0, 48 / 3600)),
        # 11 waves: 1282 / 128 rounded up.
        (1282, None, 1282, 128, {}, (11, None, None, None)),
        (8, None, 4, 3, {"seconds_per_byte": 40e-9}, (2, None, None, None)),
        (8, 10**9, 4, 3, {}, (2, None, None, None)),
    ],
)
def test_by_hand(n: int, total: int | None, w: int, p: int, rate: dict[str, float], expected: tuple[object]) -> None:
    made = estimate(n, total, w, p, cpus=2.0, memory_gib=4.0, **rate)  # type: ignore[arg-type]
    rounds, slice_seconds, seconds, hours = expected  # type: ignore[misc]
    assert waves(w, p) == rounds
    assert (made is None) == (hours is None)
    if made is not None:
        assert made[:4] == pytest.approx((slice_seconds, seconds, 2 * hours, 4 * hours))
        assert made.cost is None


def test_money_by_hand() -> None:
    # 10 pods for 360 s are one hour of 2 CPUs and 4 GiB: 2 x 0.03 + 4 x 0.01.
    for spot, expected in ((False, 0.10), (True, 0.04)):
        made = estimate(
            10, None, 10, 10, seconds_per_shard=350.0, cpus=2.0, memory_gib=4.0, price=Price(0.03, 0.01, 0.4), spot=spot
        )
        assert made is not None and made.cost == pytest.approx(expected)


def test_prices() -> None:
    assert Price.of({}) is None
    assert Price.of({"cpu_hour": 1, "gib_hour": 0.5}) == Price(1.0, 0.5, 1.0)
    with pytest.raises(UsageError, match="no cpu_hour"):
        Price.of({"gib_hour": 1})


def test_spread() -> None:
    assert spread(1282, 3) == [213, 641, 1068]
    assert spread(2, 3) == [0, 1] and spread(0, 3) == [] and spread(7, 7) == list(range(7))


def test_sizes(tmp_path: Path) -> None:
    urls = []
    for number in range(30):
        path = tmp_path / f"{number}.tar"
        path.write_bytes(bytes(number))
        urls.append(str(path))
    assert bytes_of(urls, 30) == (435, 0) and bytes_of(urls[10:13], 300) == (3300, 3) and bytes_of([], 0) == (None, 0)
    with pytest.raises(MissingInputError):
        bytes_of([*urls, f"{tmp_path}/none"], 31)


def test_sizes_that_a_store_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"x": 5, "y": None}
    monkeypatch.setattr("tarkit.k8s.plan.shardlist.identify", lambda url: SimpleNamespace(size=sizes[url]))
    assert bytes_of(["x", "y"], 2) == bytes_of(["x", "y"], 9) == (None, 0)


def test_when_a_size_cannot_be_had_others_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answer, ended = threading.Semaphore(0), threading.Event(), []

    def identify(url: str) -> None:
        if url == "gone":
            assert all(asked.acquire(timeout=120) for _ in range(3))
            raise MissingInputError("no such file", url=url)
        asked.release()
        try:
            waits.call(answer.wait, 60)
        except waits.Stopped:
            ended.append(url)
            raise

    monkeypatch.setattr("tarkit.k8s.plan.shardlist.identify", identify)
    with pytest.raises(MissingInputError, match="gone: no such file"):
        bytes_of(["gone", "x", "y", "z"], 4)
    answer.set()
    assert sorted(ended) == ["x", "y", "z"]


# Measuring


@pytest.fixture
def shards(tmp_path: Path) -> list[str]:
    paths = []
    for number in range(3):
        path = f"{tmp_path}/s{number}.tar"
        with tarkit.TarWriter(path, encoder=False) as writer:
            writer.write({"__key__": f"k{number}", "cls": bytes(1000)})
        paths.append(path)
    return paths


TARPROC = (sys.executable, "-m", "tarkit.cli.tarproc")


def container(*args: str) -> dict[str, object]:
    return {"command": ["tarproc"], "args": ["--slice", "9", "-O", "s3://b/o", *args, "--", "s3://b/{0..9}.tar"]}


def test_the_command_of_the_manifest_is_measured(
    shards: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", f"{tmp_path}/temporary")
    clock = iter([0.0, 2.0, 10.0, 13.0, 20.0, 25.0])
    # $(ASKED) is for the kubelet, $ASKED for the shell.
    command = f"echo $(cat __key__) $ASKED $(ASKED) >> {tmp_path}/ran"
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "ASKED": "yes"}
    made = measure(container("-c", command), shards, env, TARPROC, clock=lambda: next(clock))
    assert made.shards == 3 and made.per_shard == Spread(3.0, 2.0, 5.0)
    size = Path(shards[0]).stat().st_size
    assert made.per_byte == Spread(3.0 / size, 2.0 / size, 5.0 / size)
    assert (tmp_path / "ran").read_text().splitlines() == [f"k{number} yes yes" for number in range(3)]
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_command_with_a_folder_and_options(shards: list[str], tmp_path: Path) -> None:
    ran = {"command": ["/opt/bin/tarproc", "-c", f"cat __key__ >> {tmp_path}/ran"], "args": ["--count=1"]}
    assert measure(ran, shards[:1], {"PATH": "/usr/bin:/bin"}, TARPROC).shards == 1
    assert (tmp_path / "ran").read_text() == "k0"


def test_a_shard_that_fails(shards: list[str]) -> None:
    env = {"PATH": "/usr/bin:/bin"}
    with pytest.raises(TarkitError, match=r"s0\.tar: tarproc ended with exit code 1: .*all 1 samples failed") as caught:
        measure(container("-c", "exit 7"), shards, env, TARPROC)
    assert caught.value.exit_code == 1 and "\n" not in str(caught.value)
    with pytest.raises(TarkitError, match="exit code 127: .*no-such-command"):
        measure(container("-c", "no-such-command"), shards, env, TARPROC)
    silent = (sys.executable, "-c", "raise SystemExit(9)")
    with pytest.raises(TarkitError, match="exit code 9: it printed nothing"):
        measure(container(), shards, env, silent)


def test_what_can_not_be_measured(shards: list[str]) -> None:
    with pytest.raises(UsageError, match="without it, as with --raw"):
        measure({"command": ["/bin/bash", "-c"], "args": ["true"]}, shards, {}, TARPROC)
    with pytest.raises(MissingInputError):
        measure(container(), ["/nowhere/x.tar"], {}, TARPROC)


def test_arguments_for_one_shard() -> None:
    args = ["--slice", "4", "-O", "s3://o", "-p", "2", "-c", "cat --slice", "--report=x", "--outdir=y", "--", "a", "b"]
    work = Work.from_args(args)
    assert arguments_for(work, "s.tar", "d") == ["-O", "d", "-p", "2", "-c", "cat --slice", "--", "s.tar"]


# Lines


def test_sizes_and_times_as_people_write_them() -> None:
    for number, text in (
        (0, "0 bytes"), (999, "999 bytes"), (1000, "1.00 kB"), (999_600, "1.00 MB"), (1_180_000_000_000, "1.18 TB"),
        (99_950_000, "100 MB"), (12_345_678, "12.3 MB"), (2 * 10**18, "2000 PB"),
    ):  # fmt: skip
        assert byte_size(number) == text
    for seconds, text in (
        (0.4, "0 s"), (99, "99 s"), (100, "2 min"), (3599, "1 h 00"), (7500, "2 h 05"), (172_800, "2 d 0 h"),
        (356_400, "4 d 3 h"),
    ):  # fmt: skip
        assert in_words(seconds) == text


def test_lines() -> None:
    plan = plan_shards(["s3://u:secret@b/x-{000000..001281}.tar"], parallelism=128)
    bare = estimate(1282, None, 1282, 128)
    assert plan_lines(plan, 128, bare) == [
        "1,282 shards, bytes not known (--sizes all or sample asks) → 1,282 slices, 128 at a time, 11 waves",
        "time and cost are not known: --measure 3 runs 3 shards here, or give --shard-seconds",
        "shards by pattern: s3://b/x-{000000..001281}.tar",
    ]
    plan.total_bytes, plan.sampled = 1_180_000_000_000, 20
    plan.notes.append("take care")
    measured = Measured(3, Spread(38.0, 35.0, 44.0), Spread(41e-9, 41e-9, 41e-9))
    made = estimate(
        1282, plan.total_bytes, 1282, 128, seconds_per_byte=41e-9, cpus=2, memory_gib=4, price=Price(0.05), spot=True
    )
    # 48,380 s of work and 12,820 s of starting are 17 h for each CPU; 11 waves of 47.74 s.
    assert plan_lines(plan, 128, made, measured=measured, spot=True) == [
        "1,282 shards, 1.18 TB (sampled 20) → 1,282 slices, 128 at a time, 11 waves",
        "measured 41 s/GB, 38 (35 to 44) s a shard on 3 shards (--measure 3, on this machine)",
        "→ ~9 min; ~34 CPU-h, ~68 GiB-h; $1.70 at your prices, on spot nodes",
        "  of it in a pod ~38 s, and 10 s to start; if 10 pods a second can be started, none waits for a node, and "
        "nothing is done twice",
        "shards by pattern: s3://b/x-{000000..001281}.tar",
        "note: take care",
    ]
    told = plan_lines(plan, 128, estimate(1, None, 1, 1, seconds_per_shard=5.0), shard_seconds=5.0)
    assert told[1] == "5 s a shard (--shard-seconds)"
    assert "~15 s; ~0.0042 CPU-h; no price is configured" in told[2]
    slow = Measured(3, Spread(3611.0, 999.6, 1234567.0), Spread(41e-9, 41e-9, 41e-9))
    assert "3,610 (1,000 to 1,230,000) s a shard" in plan_lines(plan, 128, made, measured=slow)[1]


# The command


def kubetpl(capfd: pytest.CaptureFixture[str], *argv: str) -> tuple[int, list[str], str]:
    (entry,) = importlib.metadata.entry_points(group="console_scripts", name="kubetpl")
    main = entry.load()
    capfd.readouterr()
    code = main([str(argument) for argument in argv])
    out, err = capfd.readouterr()
    return code, out.splitlines(), err


@pytest.fixture(autouse=True)
def alone(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without anybody's configuration."""
    folder = tmp_path_factory.mktemp("alone")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    return folder


def test_the_command_measures(shards: list[str], alone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (alone / "kubetpl.yaml").write_text("price: {cpu_hour: 36, gib_hour: 0}\n")
    spec = f"{Path(shards[0]).parent}/s{{0..2}}.tar"
    code, lines, err = kubetpl(
        capfd, "plan", "--shards", spec, "-O", "s3://b/o", "-c", "true", "-C", "1500m", "-j", "2", "--measure", "2"
    )
    assert (code, err) == (0, "")
    total = byte_size(3 * Path(shards[0]).stat().st_size)
    assert lines[0] == f"3 shards, {total} → 3 slices, 2 at a time, 2 waves"
    assert "s/GB" in lines[1] and "on 2 shards (--measure 2" in lines[1]
    assert " CPU-h" in lines[2] and "at your prices" in lines[2]
    assert list(alone.iterdir()) == [alone / "kubetpl.yaml"]
    _, _, err = kubetpl(
        capfd, "plan", "--shards", spec, "-O", "s3://b/o", "-c", "true", "-e", "MY_TOKEN=x", "--measure", "1"
    )
    assert err.count("MY_TOKEN") == 1
    code, lines, err = kubetpl(capfd, "plan", "--shards", spec, "-O", "s3://b/o", "-c", "exit 1", "--measure", "2")
    assert (code, lines, err.count("\n")) == (1, [], 1) and "exit code 1" in err


def test_the_command_without_measuring(alone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("s3fs", reason="NO S3FS, A LIST IN S3 IS NOT ASKED FOR: pip install s3fs")
    code, lines, err = kubetpl(
        capfd, "plan", "--shards", "s3://b/{000000..999999}.tar", "--shard-seconds", "6s", "--slice-target", "1h"
    )
    # 6,000,000 s in slices of an hour.
    assert (code, err) == (0, "") and "→ 1,667 slices, 128 at a time, 14 waves" in lines[0]
    assert "no price is configured" in lines[2]
    for arguments, words in (
        ((), "--shards"),
        (("--shards", "x.tar"), "a pod cannot see"),
        (("--shards", "s3://b/{0..9}.tar", "--measure", "2"), "--command"),
        (("--shards", "s3://b/{0..9}.tar", "--measure", "2", "--raw", "-c", "true"), "--raw"),
        (("--shards", "s3://b/{0..9}.tar", "-j", "0"), "--parallelism"),
    ):
        code, lines, err = kubetpl(capfd, "plan", *arguments)
        assert (code, lines, err.count("\n")) == (2, [], 1) and words in err
