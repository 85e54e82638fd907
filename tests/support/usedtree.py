"""A mapper with modules beside it, and the names of the files that a work uses."""

from __future__ import annotations

from pathlib import Path

from tarkit.runs.usedfiles import used_files
from tarkit.runs.work import Work


def names(work: Work, folder: Path) -> set[str]:
    """Names of the files that are found, those of a command as below ``folder``."""
    return {each.get("name") or str(Path(each["path"]).relative_to(folder)) for each in used_files(work)}


def write_tree(folder: Path) -> Path:
    """Write a mapper, and modules that it imports or not. Returns the folder."""
    sources = {
        "mapper.py": "import os, json, numpy\nimport helper\nfrom space import one\nimport pkg.sub as s\n"
        "from pkg import other, VALUE\ndef grey(sample):\n    import late\n    return sample\n",
        "helper.py": "import space.deep.down\nraise SystemExit('this is never run')\n",
        "space/one.py": "", "space/two.py": "", "space/deep/down.py": "from ..two import x\n",
        "pkg/__init__.py": "VALUE = 1\n", "pkg/sub.py": "from . import beside\nfrom .inner import thing\n",
        "pkg/beside.py": "", "pkg/other.py": "def broken(:\n", "pkg/inner/__init__.py": "from ..up import x\n",
        "pkg/up.py": "", "late.py": "", "never.py": "", "pkg/never.py": "",
    }  # fmt: skip
    for name, text in sources.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


BESIDE = {
    "helper.py", "space/one.py", "space/two.py", "space/deep/down.py", "pkg/__init__.py", "pkg/sub.py", "pkg/beside.py",
    "pkg/other.py", "pkg/inner/__init__.py", "pkg/up.py", "late.py",
}  # fmt: skip
