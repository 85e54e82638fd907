"""hf:// against a stand-in for the Hugging Face Hub, asked by the real huggingface_hub and by
tarkit's own requests.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import warmprogram
from httpserver import Fault
from hubserver import TOKEN, Hub

import tarkit
from tarkit.errors import MissingInputError, StreamError, TemporaryStreamError, UsageError
from tarkit.k8s.plan.sliceplan import plan_shards
from tarkit.specs.inputslice import plan_slice
from tarkit.specs.shardspec import expand
from tarkit.store.entries import entries, identify, remove, stat
from tarkit.store.publish import open_publish
from tarkit.store.read import open_read, read_range
from tarkit.store.retry import Retry
from tarkit.store.waits import Workers

REPOSITORY = "datasets/org/name"
NAME = f"hf://{REPOSITORY}"
FAST = Retry(base=0.0)


def shard(number: int) -> bytes:
    """A tar of one sample, that does not compress."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        content = random.Random(number).randbytes(50_000)
        member = tarfile.TarInfo(f"{number}.bin")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


FILES = {f"data/train-{number:04d}.tar": shard(number) for number in range(7)} | {"README.md": b"# name\n"}
FIRST = FILES["data/train-0000.tar"]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub with one data set, for which this process has no token."""
    pytest.importorskip("huggingface_hub", reason="NO huggingface_hub, hf:// IS NOT TESTED")
    import fsspec

    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    with Hub() as running:
        # HF_ENDPOINT is read when the library is imported; programs of their own get it.
        monkeypatch.setattr(fsspec.config, "conf", {"hf": {"endpoint": running.url}})
        running.commit(REPOSITORY, FILES)
        yield running


@pytest.fixture
def commit(hub: Hub) -> str:
    return hub.sha(REPOSITORY, "main")


def get(url: str, retry: Retry = FAST) -> bytes:
    with open_read(url, compression=None, retry=retry) as stream:
        return b"".join(iter(lambda: stream.read(1 << 20), b""))


def run(hub: Hub, program: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program with the Hub as its endpoint, and no token but one that is given here."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING_FACE"))}
    words, variables = [program, *map(str, arguments)], {"HF_ENDPOINT": hub.url, "HF_HOME": "/nonexistent"}
    done = warmprogram.run(words, os.getcwd(), {**kept, **variables, **environment}, None, 120)
    return subprocess.CompletedProcess(words, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_a_spec_is_resolved_once_to_a_commit_which_everything_names(hub: Hub, commit: str) -> None:
    spec = f"{NAME}/data/train-{{0000..0006}}.tar"
    names = expand(spec)
    first = next(names)
    moved = {path: shard(99) for path in FILES}
    hub.commit(REPOSITORY, moved)
    urls = [first, *names]
    assert urls == [f"{NAME}@{commit}/data/train-{number:04d}.tar" for number in range(7)]
    assert list(expand(spec)) == urls, "one process reads one commit"
    samples = list(tarkit.read_samples(spec))
    assert [sample["__url__"] for sample in samples] == urls
    assert [sample["bin"] for sample in samples] == [random.Random(number).randbytes(50_000) for number in range(7)]
    assert len(hub.asked("/api/")) == 1


@pytest.mark.parametrize("revision", ["main", "v1.0", "refs/pr/1", "refs%2Fpr%2F1", "a%2Fb"])
def test_branches_tags_and_pull_requests_are_pinned(hub: Hub, revision: str) -> None:
    sha = hub.commit(REPOSITORY, {"a.tar": FIRST}, "main", "v1.0", "refs/pr/1", "a/b")
    assert list(expand(f"{NAME}@{revision}/{{a,b}}.tar")) == [f"{NAME}@{sha}/a.tar", f"{NAME}@{sha}/b.tar"]
    assert get(f"{NAME}@{revision}/a.tar") == FIRST


def test_a_commit_is_not_asked_for(hub: Hub, commit: str) -> None:
    url = f"{NAME}@{commit}/data/train-0000.tar"
    assert list(expand(url)) == [url]
    assert not hub.requests
    assert get(url) == FIRST
    assert [path for _, path, _ in hub.requests] == [f"/{REPOSITORY}/resolve/{commit}/data/train-0000.tar"]


def test_models_and_small_files_are_read(hub: Hub) -> None:
    sha = hub.commit("org/model", {"a b#?é.tar": b"small", "large.tar": FIRST})
    for prefix in ("hf://org/model", "hf://models/org/model", f"hf://org/model@{sha}"):
        assert get(f"{prefix}/a b#?é.tar") == b"small"
        assert get(f"{prefix}/large.tar") == FIRST


def test_ranges_are_asked_for_and_no_more(hub: Hub, commit: str) -> None:
    url = f"{NAME}@{commit}/data/train-0000.tar"
    assert read_range(url, 1000, 3000, size=len(FIRST)) == FIRST[1000:3000]
    assert hub.store.sent == 2000
    assert read_range(f"{NAME}/README.md", 2, 6, size=7) == b"name"


def test_a_read_goes_on_after_drops_429_and_503(hub: Hub, commit: str) -> None:
    hub.answers = [(503, {}), (429, {"Retry-After": "0"})]
    hub.damage(FIRST, Fault("cut", 20_000), Fault("reset", 30_000), Fault("status", status=503))
    assert get(f"{NAME}@{commit}/data/train-0000.tar") == FIRST
    # Each attempt begins at the Hub: the signature in a redirect is not valid for long.
    assert len(hub.asked("/resolve/")) == 6


def test_the_limit_of_requests_is_waited_for(hub: Hub, commit: str) -> None:
    waited: list[float] = []
    clock = Retry(base=0.0, sleep=waited.append)
    hub.answers = [
        (429, {"RateLimit": '"resolvers";r=0;t=7', "RateLimit-Policy": '"fixed window";"resolvers";q=1;w=300'})
    ]
    assert get(f"{NAME}@{commit}/data/train-0000.tar", clock) == FIRST
    assert 6.9 < sum(waited) < 7.1


def test_other_bytes_than_those_of_the_commit_are_refused(hub: Hub, commit: str) -> None:
    hub.damage(FIRST, Fault("cut", 20_000), Fault("replace"))
    with pytest.raises(StreamError, match=f"{NAME}@{commit}/data/train-0000.tar, offset 20000: .*changed"):
        get(f"{NAME}/data/train-0000.tar")
    other = FILES["data/train-0001.tar"]
    hub.damage(other, Fault("replace"))
    with pytest.raises(StreamError, match=r"the sha256 of the received bytes is .* but the store gives"):
        get(f"{NAME}/data/train-0001.tar")


def test_what_is_missing_is_named_with_its_commit(hub: Hub, commit: str) -> None:
    for look in (get, stat, identify):
        with pytest.raises(MissingInputError, match=re.escape(f"{NAME}@{commit}/no.tar: ")):
            look(f"{NAME}/no.tar")
    with pytest.raises(MissingInputError, match="no revision 'v9'"):
        get(f"{NAME}@v9/data/train-0000.tar")
    with pytest.raises(MissingInputError, match=r"no such repository.*HF_TOKEN"):
        list(expand("hf://datasets/org/none/a-{0..9}.tar"))
    with pytest.raises(MissingInputError, match="nothing matches"):
        list(expand(f"{NAME}/none-*.tar"))


def test_globs_and_folders_are_listed_page_by_page(hub: Hub, commit: str) -> None:
    hub.answers = [(503, {})]
    urls = [f"{NAME}@{commit}/data/train-{number:04d}.tar" for number in range(7)]
    assert list(expand(f"{NAME}/data/*.tar")) == urls
    assert list(expand(f"{NAME}/**/train-000[2-3].tar")) == urls[2:4]
    assert [entry.url for entry in entries(f"{NAME}/data")] == urls
    found = list(entries(NAME, recursive=True))
    assert [entry.name for entry in found] == ["README.md", *(f"data/train-{number:04d}.tar" for number in range(7))]
    assert found[1].size == len(FIRST)
    assert stat(f"{NAME}/data").is_folder


def test_the_identity_is_that_of_the_content_and_one_listing_has_all(hub: Hub, commit: str) -> None:
    before = [identify(url) for url in expand(f"{NAME}/data/train-{{0000..0006}}.tar")]
    assert len({identity.tag for identity in before}) == 7
    with Workers(1, "look") as workers:
        assert workers.submit(identify, f"{NAME}/data/train-0003.tar").result() == before[3]
    assert len(hub.asked("/tree/")) == 3, "three pages, for seven files and two threads"
    assert len(hub.asked("/api/")) == 3 + 3, "a revision, its commit, and the repository"
    assert not hub.asked("/resolve/")
    sha = hub.commit(REPOSITORY, {**FILES, "data/train-0001.tar": shard(50), "new.txt": b"new"})
    after = [identify(f"{NAME}@{sha}/data/train-{number:04d}.tar") for number in range(7)]
    assert [number for number in range(7) if before[number] != after[number]] == [1]


def test_private_and_gated_repositories_ask_for_a_token(
    hub: Hub, commit: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"{NAME}/data/train-0000.tar"
    hub.gated.add(REPOSITORY)
    with pytest.raises(StreamError, match=r"401 Unauthorized.*HF_TOKEN"):
        get(url)
    hub.private.add(REPOSITORY)
    sha = hub.commit(REPOSITORY, FILES, "other")
    for private in (f"{NAME}@other/data/train-0000.tar", f"{NAME}@{sha}/data/train-0000.tar", f"{NAME}@{sha}/data/*"):
        with pytest.raises(MissingInputError, match="HF_TOKEN") as missing:
            for each in expand(private):
                get(each)
        assert "\\n" not in str(missing.value)
    monkeypatch.setenv("HF_TOKEN", "hf_WRONGtoken")
    with pytest.raises(StreamError, match="HF_TOKEN") as raised:
        list(expand(f"{NAME}@other/data/train-0000.tar"))
    assert "hf_WRONG" not in str(raised.value)
    assert not [record for record in caplog.records if record.name == "tarkit.retry"], "each was tried once"
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert get(url) == get(f"{NAME}@other/data/train-0000.tar") == FIRST
    assert hub.asked("/resolve/")[-1][2]["Authorization"] == f"Bearer {TOKEN}"
    assert not any("Authorization" in headers for _, headers in hub.store.requests), "the store is another server"


def test_a_server_that_is_gone_or_forbidden_is_told_apart(
    hub: Hub, commit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fsspec

    monkeypatch.setattr(fsspec.config, "conf", {"hf": {"endpoint": "http://127.0.0.1:9"}})
    with pytest.raises(TemporaryStreamError, match="refused"):
        get(f"{NAME}@{commit}/a.tar", Retry(attempts=1))
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    for url in (f"{NAME}/a.tar", f"{NAME}@{commit}/a.tar"):
        with pytest.raises(StreamError, match="HF_HUB_OFFLINE") as raised:
            get(url)
        assert not isinstance(raised.value, TemporaryStreamError)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("hf://datasets/org/{a,b}/x.tar", "name each repository"),
        ("hf://datasets/org/*/x.tar", "name each repository"),
        ("hf://datasets/org/name@v{1,2}/x.tar", "name each repository"),
        ("hf://buckets/org/name/x.tar", "buckets"),
        ("hf://gpt2", "hf://datasets/OWNER/NAME/PATH"),
        (f"{NAME}@../data/train-0000.tar", "cannot be part of a revision or path"),
        (f"{NAME}@%2E%2e/data/train-0000.tar", "cannot be part of a revision or path"),
        (f"{NAME}@v1%2F../data/train-0000.tar", "cannot be part of a revision or path"),
        (f"{NAME}@v1/../main/data/*.tar", "cannot be part of a revision or path"),
        (f"{NAME}/./data/train-0000.tar", "cannot be part of a revision or path"),
    ],
)
def test_what_names_no_repository_is_refused(hub: Hub, spec: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        list(expand(spec))
    assert not hub.requests


def test_nothing_is_written_to_the_hub(hub: Hub) -> None:
    url = f"{NAME}/data/train-0000.tar"
    for refused in (lambda: open_publish(url), lambda: remove(url)):
        with pytest.raises(UsageError, match=r"hf:// cannot be (written to|removed)"):
            refused()
    assert not [each for each in hub.requests if each[0] not in ("GET", "HEAD")]


def test_slices_of_pods_are_of_one_commit(hub: Hub, commit: str) -> None:
    spec = f"{NAME}/data/train-{{0000..0006}}.tar"
    plan = plan_shards([spec], slices=3)
    assert plan.specs == [f"{NAME}@{commit}/data/train-{{0000..0006}}.tar"]
    pairs, inputs = plan_slice([spec], "out", 1, 3)
    assert pairs[0][0] == f"{NAME}@{commit}/data/train-0002.tar"
    assert inputs.patterns == (f"{NAME}@{commit}/data/train-{{0000..0006}}.tar",)
    done = run(hub, "kubetpl", "indexed", "-n", "x", "-I", "i", "-c", "true", "--shards", spec, "-O", "s3://b/out")
    assert done.returncode == 0, done.stderr
    assert f"{NAME}@{commit}/data/train-{{0000..0006}}.tar" in done.stdout
    assert f"{NAME}/" not in done.stdout


def test_a_run_records_the_commit_and_skips_what_is_done(hub: Hub, commit: str, tmp_path: Path) -> None:
    spec = f"{NAME}@main/data/train-{{0000..0001}}.tar"
    for done, before in ((2, 0), (0, 2)):
        counts = tarkit.process(spec, outdir=tmp_path / "out", command="true")
        assert (counts.shards_done, counts.shards_before) == (done, before)
    record = json.loads(next((tmp_path / "out").rglob("*train-0000*.json")).read_text())
    assert record["input"]["url"] == f"{NAME}@{commit}/data/train-0000.tar"
    assert record["input"]["size"] == len(FIRST)


def test_the_programs_use_the_token_and_show_it_nowhere(hub: Hub, tmp_path: Path) -> None:
    hub.private.add(REPOSITORY)
    refused = run(hub, "tarkit", "cat", f"{NAME}/data/train-0000.tar")
    assert refused.returncode == 66
    assert "HF_TOKEN" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    got = run(hub, "tarkit", "get", f"{NAME}/data/train-0000.tar", tmp_path, HF_TOKEN=TOKEN)
    assert got.returncode == 0, got.stderr
    assert (tmp_path / "train-0000.tar").read_bytes() == FIRST
    assert "CANARY" not in got.stdout + got.stderr
