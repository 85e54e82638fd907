"""What a program loads before it does anything: counted in modules, since times depend on the load
of the machine.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tarkit import TarWriter

# What only networks, event loops, other programs' data, or rare options need.
RARE = {
    "asyncio", "email", "fsspec", "http", "importlib.metadata", "isal", "multiprocess", "numpy", "secrets", "socket",
    "ssl", "tqdm", "urllib.request", "yaml", "zipfile",
}  # fmt: skip
NOT_FOR_HELP = RARE | {
    "concurrent.futures", "ctypes", "hashlib", "logging", "random", "select", "subprocess", "tarkit.runs.process",
    "tarkit.store.registry", "tempfile",
}  # fmt: skip
NOT_FOR_ONE_SHARD = RARE | {
    "json", "sysconfig", "tarkit.mapping.pythonpool", "tarkit.runs.donerecord", "tarkit.runs.runrecord",
    "tarkit.runs.shards", "tarkit.samples.codecs", "tarkit.samples.index", "tarkit.specs.inputslice",
    "tarkit.store.cache", "tarkit.steps",
}  # fmt: skip


def loaded_by(program: str, *words: str) -> set[str]:
    """Modules that a program loads in a fresh interpreter, beyond those that its environment has
    loaded by then.
    """
    code = (
        "import sys; before = {*sys.modules}\n"
        f"from tarkit.cli.{program} import main\n"
        f"code = main({[*words]})\n"
        "print('\\n', *{*sys.modules} - before)\n"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = set(done.stdout.splitlines()[-1].split())
    assert {"click", f"tarkit.cli.{program}"} <= found, "the check can fail"
    return found


@pytest.mark.parametrize("program", ["tarproc", "tarkit", "kubetpl"])
def test_help_loads_only_what_prints_it(program: str) -> None:
    assert loaded_by(program, "--help") & NOT_FOR_HELP == set()


def test_a_command_over_one_shard_loads_nothing_for_other_options(tmp_path: Path) -> None:
    with TarWriter(tmp_path / "a.tar") as writer:
        writer.write({"__key__": "k", "txt": b"text"})
    found = loaded_by("tarproc", "-c", "true", str(tmp_path / "a.tar"), "-o", str(tmp_path / "b.tar"))
    assert (tmp_path / "b.tar").read_bytes() == (tmp_path / "a.tar").read_bytes()
    assert found & NOT_FOR_ONE_SHARD == set()
