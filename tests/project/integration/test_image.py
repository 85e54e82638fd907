"""The image of the Dockerfile, and images made from it, built on a Debian of debootstrap and run by
buildah.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from installed import program_path

import tarkit
from tarkit.steps.demodata import demo_samples

pytestmark = pytest.mark.image
ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "images.md").read_text(encoding="utf-8")
ETL = re.findall(r"<!-- image: etl -->\n```dockerfile\n(.*?)```", PAGE, re.DOTALL)
NAME = f"tarkit:{tarkit.__version__}"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
NOT_TESTED = "THE DOCKERFILE IS NOT TESTED"


class Buildah:
    """buildah with images of its own, which are removed with the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        settings = f'graphroot = "{folder}/images"\nrunroot = "{folder}/run"\n'
        self.environment = {
            **os.environ, "BUILDAH_ISOLATION": "chroot", "CONTAINERS_STORAGE_CONF": f"{folder}/storage.conf"
        }  # fmt: skip
        for driver in ("overlay", "vfs"):
            (folder / "storage.conf").write_text(f'[storage]\ndriver = "{driver}"\n{settings}')
            if self.call("info").returncode == 0:
                return
        pytest.skip(f"BUILDAH CANNOT KEEP IMAGES HERE, {NOT_TESTED}")

    def call(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        command = ["buildah", *map(str, words)]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False, timeout=1500)

    def __call__(self, *words: str | Path) -> str:
        """What it prints on standard output."""
        done = self.call(*words)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout.strip()

    def run(self, image: str, *words: str | Path, mount: str = "") -> str:
        """What a command prints in a new container of an image."""
        container = self("from", "--pull-never", image)
        try:
            return self("run", *(["--volume", mount] if mount else []), container, "--", *words)
        finally:
            self("rm", container)


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buildah]:
    """With the image ``base``: a Debian with Python.

    TARKIT_IMAGE_BASE names the tar of one that is there already.
    """
    if os.geteuid() != 0:
        pytest.skip(f"NOT ROOT, {NOT_TESTED}")
    for program in ("buildah", "debootstrap"):
        if shutil.which(program) is None:
            pytest.skip(f"NO {program}, {NOT_TESTED}: apt-get install {program}")
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip(f"NO MOUNTS ARE ALLOWED HERE, {NOT_TESTED}: a container has to be privileged")
    folder = tmp_path_factory.mktemp("buildah")
    made = Buildah(folder)
    try:
        container = made("from", "scratch")
        made("add", container, debian(folder), "/")
        if CERTIFICATES.exists():
            # Of a network whose proxy has a certificate of its own.
            made("copy", container, CERTIFICATES, CERTIFICATES)
        made("commit", "--rm", container, "localhost/base")
        yield made
    finally:
        made.call("rm", "--all")
        made.call("rmi", "--all", "--force")
        shutil.rmtree(folder)


def debian(folder: Path) -> Path:
    """The tar of a Debian with Python."""
    if "TARKIT_IMAGE_BASE" in os.environ:
        return Path(os.environ["TARKIT_IMAGE_BASE"])
    packages = "python3,python3-venv,ca-certificates"
    made = folder / "base.tar"
    words = ["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(folder / "debian")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=1500)
    assert done.returncode == 0, done.stdout[-3000:]
    subprocess.run(["tar", "-C", folder / "debian", "-cf", made, "."], check=True)
    shutil.rmtree(folder / "debian")
    return made


@pytest.fixture(scope="module")
def image(buildah: Buildah) -> str:
    """tarkit's image, from this tree, on that Debian."""
    secret = ["--secret", "id=pip.conf,src=/etc/pip.conf"] if Path("/etc/pip.conf").exists() else []
    buildah("build", "--build-arg", "BASE=localhost/base", *secret, "-t", NAME, ROOT)
    return NAME


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder that the user of the image may write to, with a shard."""
    folder = tmp_path / "data"
    folder.mkdir()
    with tarkit.TarWriter(str(folder / "in.tar"), encoder=False) as writer:
        for sample in demo_samples(20):
            writer.write(sample)
    os.chown(folder, 65532, 65532)
    (folder / "in.tar").chmod(0o644)
    return folder


def test_the_user_is_that_of_the_pods(buildah: Buildah, image: str) -> None:
    assert buildah.run(image, "id") == "uid=65532(tarkit) gid=65532(tarkit) groups=65532(tarkit)"
    assert buildah.run(image, "sh", "-c", "tarproc --version; cd; pwd; touch /opt/x || echo not mine").split("\n") == [
        f"tarproc {tarkit.__version__}", "/home/tarkit", "not mine",
    ]  # fmt: skip
    assert buildah.run(image, "sh", "-c", "ls /etc/pip.conf /src /wheels || true") == ""


def test_the_wheel_of_this_tree_is_in_it_whole(buildah: Buildah, image: str) -> None:
    program = "import pathlib, tarkit; print(*sorted(map(str, pathlib.Path(tarkit.__file__).parent.rglob('*.py'))))"
    inside = {name.partition("/tarkit/lib/")[2] for name in buildah.run(image, "python", "-c", program).split()}
    ours = {path.relative_to(ROOT).as_posix() for top in ("tarkit", "cli") for path in (ROOT / top).rglob("*.py")}
    assert {name.partition("site-packages/")[2].replace("tarkit/cli/", "cli/") for name in inside} >= ours


def test_stores_and_the_service_are_in_it(buildah: Buildah, image: str) -> None:
    buildah.run(image, "python", "-c", "import adlfs, gcsfs, hdfs_native, s3fs, tarkit.service.serve, grpc")
    assert buildah.run(image, "tarkit", "serve", "--help").startswith("Usage: tarkit serve ")


def test_tarproc_writes_the_same_bytes_as_outside(buildah: Buildah, image: str, data: Path) -> None:
    command = ["-p", "2", "-c", "cksum < sample.ppm > sample.sum", "--quiet"]
    buildah.run(image, "tarproc", *command, "/data/in.tar", "-o", "/data/out.tar", mount=f"{data}:/data")
    outside = [program_path("tarproc"), *command, str(data / "in.tar"), "-o", str(data / "ours.tar")]
    subprocess.run(outside, check=True, capture_output=True)
    assert (data / "out.tar").read_bytes() == (data / "ours.tar").read_bytes()
    assert (data / "out.tar").stat().st_uid == 65532
    assert sum(1 for _ in tarkit.read_samples(data / "out.tar")) == 20


def test_programs_are_added_as_the_page_says(buildah: Buildah, image: str, data: Path, tmp_path: Path) -> None:
    (dockerfile,) = ETL
    (tmp_path / "Dockerfile").write_text(dockerfile)
    buildah("build", "-t", "example.com/etl:1", tmp_path)
    (command,) = re.findall(r"^    tarproc -c '(gm .*?)'", PAGE, re.MULTILINE)
    words = ["tarproc", "-c", command, "/data/in.tar", "-o", "/data/jpeg.tar", "--quiet"]
    buildah.run("example.com/etl:1", *words, mount=f"{data}:/data")
    samples = list(tarkit.read_samples(data / "jpeg.tar"))
    assert len(samples) == 20 and all(sample["jpg"][:2] == b"\xff\xd8" for sample in samples)
    assert buildah.run("example.com/etl:1", "id", "-u") == "65532"


def test_a_model_zoo_is_built_and_run(
    buildah: Buildah, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model_zoo" / "iris").mkdir(parents=True)
    (tmp_path / "model_zoo" / "iris" / "train.py").write_text("import os, grpc\nprint('trained by', os.getuid())\n")
    for name in ("BUILDAH_ISOLATION", "CONTAINERS_STORAGE_CONF"):
        monkeypatch.setenv(name, buildah.environment[name])
    for words in (["init", "--model_zoo=model_zoo"], ["build", "--engine=buildah", "--image=elasticdl:master", "."]):
        done = subprocess.run(
            [program_path("tarkit"), "zoo", *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert buildah.run("elasticdl:master", "python", "-m", "model_zoo.iris.train") == "trained by 65532"


def test_a_zoo_without_tarkit_in_its_base_is_not_built(buildah: Buildah, tmp_path: Path) -> None:
    subprocess.run([program_path("tarkit"), "zoo", "init", "--base_image=localhost/base"], cwd=tmp_path, check=True)
    done = buildah.call("build", "-t", "bare", tmp_path)
    assert done.returncode != 0 and "No module named 'tarkit'" in done.stderr
