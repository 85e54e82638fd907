"""The arrows between the modules point down, and the house rules that a parser can hold."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Module -> layer. A module imports from strictly lower layers only.
LAYERS = {
    "tarkit.redaction": -1,
    "tarkit.errors": 0,
    # what a thing is: no input, no output
    "tarkit.transport.blockframes": 1,
    "tarkit.heap": 1,
    "tarkit.transport": 1,
    "tarkit.ownfiles": 1,
    "tarkit.extras": 1,
    "tarkit.output": 1,
    "tarkit.openfolder": 1,
    "tarkit.removal": 1,
    "tarkit.transport.pipes": 1,
    "tarkit.transport.waits": 0,
    "tarkit.transport.retry": 1,
    "tarkit.sample": 1,
    "tarkit.fieldfile": 1,
    "tarkit.books": 2,
    "tarkit.tarheader": 1,
    # one step over bytes, members or samples
    "tarkit.transport.checksums": 2,
    "tarkit.transport.compression": 2,
    "tarkit.images": 2,
    "tarkit.arrays": 2,
    "tarkit.jsontext": 2,
    "tarkit.frames": 2,
    "tarkit.parallel": 2,
    "tarkit.transport.parts": 2,
    "tarkit.transport.readahead": 2,
    "tarkit.scratch": 2,
    "tarkit.transport.sources": 2,
    "tarkit.tarwalk": 2,
    "tarkit.transforms": 2,
    "tarkit.salvage": 3,
    "tarkit.largemembers": 3,
    "tarkit.rawarchive": 4,
    # bytes out; commands and functions over samples
    "tarkit.codecs": 3,
    "tarkit.shellpool": 3,
    "tarkit.transport.sinks": 3,
    "tarkit.pythonworker": 4,
    "tarkit.pythonpool": 5,
    "tarkit.transport.httpanswer": 2,
    "tarkit.transport.httpbody": 2,
    "tarkit.transport.httpstrict": 2,
    "tarkit.transport.remote": 3,
    "tarkit.transport.resume": 3,
    "tarkit.transport.httpread": 4,
    "tarkit.transport.hdfsclient": 4,
    "tarkit.transport.webhdfsurl": 4,
    "tarkit.transport.webhdfswrite": 4,
    "tarkit.transport.hdfsnative": 5,
    "tarkit.transport.webhdfs": 5,
    "tarkit.transport.hdfs": 6,
    "tarkit.transport.fsspecread": 4,
    "tarkit.transport.objectsink": 5,
    "tarkit.transport.gcsstore": 6,
    "tarkit.transport.s3store": 6,
    "tarkit.transport.upload": 7,
    "tarkit.transport.ranges": 7,
    "tarkit.transport.publish": 8,
    # bytes by name, then many names
    "tarkit.streams": 9,
    "tarkit.entries": 9,
    "tarkit.transfer": 10,
    "tarkit.braces": 9,
    "tarkit.shards": 10,
    "tarkit.distinctnames": 10,
    # shards
    "tarkit.demodata": 2,
    "tarkit.gather": 10,
    "tarkit.identity": 9,
    "tarkit.donerecord": 10,
    "tarkit.plan": 11,
    "tarkit.shardplan": 11,
    "tarkit.shardlist": 12,
    "tarkit.inputslice": 13,
    "tarkit.rawtar": 11,
    "tarkit.rewrite": 12,
    "tarkit.tarshard": 11,
    "tarkit.tarwriter": 10,
    "tarkit.shardseries": 11,
    "tarkit.shardwriter": 11,
    "tarkit.writer": 12,
    # whole runs
    "tarkit.dataset": 13,
    "tarkit.account": 13,
    "tarkit.run": 14,
    "tarkit.shardkeeper": 14,
    "tarkit.shardrun": 15,
    "tarkit.retryrun": 16,
    "tarkit.shardstatus": 16,
    "tarkit": 17,
    # work over shards as Kubernetes Jobs
    "tarkit.k8s": 20,
    "tarkit.k8s.cluster": 20,
    "tarkit.k8s.lint": 20,
    "tarkit.k8s.local": 20,
    "tarkit.k8s.plan": 20,
    "tarkit.k8s.wellknown": 19,
    "tarkit.k8s.limits": 19,
    "tarkit.k8s.indexset": 20,
    "tarkit.k8s.yamlscalars": 17,
    "tarkit.k8s.yamlreading": 19,
    "tarkit.k8s.yamltext": 20,
    "tarkit.k8s.expansion": 20,
    "tarkit.k8s.names": 19,
    "tarkit.k8s.quantity": 20,
    "tarkit.k8s.lint.enumerations": 20,
    "tarkit.k8s.lint.nodes": 21,
    "tarkit.k8s.lint.meta": 22,
    "tarkit.k8s.lint.jobs": 22,
    "tarkit.k8s.lint.pods": 22,
    "tarkit.k8s.lint.containers": 22,
    "tarkit.k8s.lint.resources": 22,
    "tarkit.k8s.lint.files": 22,
    "tarkit.k8s.lint.services": 22,
    "tarkit.k8s.lint.volumes": 23,
    "tarkit.k8s.lint.rules": 24,
    "tarkit.k8s.lint.schema": 22,
    "tarkit.k8s.lint.shapes": 23,
    "tarkit.k8s.lint.verdict": 25,
    "tarkit.k8s.durations": 20,
    "tarkit.k8s.settings": 20,
    "tarkit.k8s.fieldpath": 21,
    "tarkit.k8s.templates": 21,
    "tarkit.k8s.configuration": 21,
    "tarkit.k8s.request": 21,
    "tarkit.k8s.podfields": 22,
    "tarkit.k8s.stored": 22,
    "tarkit.k8s.placement": 23,
    "tarkit.k8s.fill": 24,
    "tarkit.k8s.generators": 20,
    "tarkit.k8s.generators.job": 26,
    "tarkit.k8s.generators.pod": 26,
    "tarkit.k8s.generators.jobs": 26,
    "tarkit.k8s.generators.indexed": 26,
    "tarkit.k8s.generators.service": 26,
    "tarkit.k8s.generators.configmap": 26,
    "tarkit.k8s.generate": 27,
    "tarkit.k8s.local.policy": 20,
    "tarkit.k8s.plan.shardlist": 20,
    "tarkit.k8s.plan.estimate": 20,
    "tarkit.k8s.plan.listing": 20,
    "tarkit.k8s.plan.podspecs": 20,
    "tarkit.k8s.plan.slicecount": 20,
    "tarkit.k8s.plan.bucketlist": 21,
    "tarkit.k8s.plan.sliceplan": 22,
    "tarkit.k8s.plan.measure": 21,
    "tarkit.k8s.plan.planlines": 23,
    "tarkit.k8s.cluster.config": 20,
    "tarkit.k8s.cluster.apicall": 20,
    "tarkit.k8s.cluster.connection": 21,
    "tarkit.k8s.cluster.jobview": 21,
    "tarkit.k8s.cluster.livelist": 22,
    "tarkit.k8s.cluster.jobfind": 22,
    "tarkit.k8s.cluster.runstate": 22,
    "tarkit.k8s.cluster.failures": 23,
    "tarkit.k8s.cluster.whynot": 22,
    "tarkit.k8s.cluster.runplan": 22,
    "tarkit.k8s.cluster.jobwatch": 23,
    "tarkit.k8s.cluster.surroundings": 23,
    "tarkit.k8s.cluster.joblogs": 24,
    "tarkit.k8s.cluster.jobstatus": 24,
    "tarkit.k8s.cluster.retry": 24,
    "tarkit.k8s.cluster.deletion": 24,
    "tarkit.k8s.local.sources": 20,
    "tarkit.k8s.local.env": 21,
    "tarkit.k8s.local.state": 21,
    "tarkit.k8s.local.watch": 21,
    "tarkit.k8s.local.mounts": 22,
    "tarkit.k8s.local.plan": 24,
    "tarkit.k8s.local.pod": 25,
    "tarkit.k8s.local.job": 26,
    "tarkit.k8s.local.run": 27,
}

# (from, to) -> why this arrow may go to the same layer. An upward arrow is never allowed.
SIDEWAYS: dict[tuple[str, str], str] = {}

CLI_LAYER = 40
FORBIDDEN_NAMES = ("utils", "common", "helpers", "base", "manager")


def sources(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found, f"no source files under {folder}/"
    return found


def module_name(path: Path) -> str:
    """The name under which a file is installed: cli/x.py is tarkit.cli.x."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts if parts[0] == "tarkit" else ["tarkit", *parts])


MODULES = {module_name(path): path for folder in ("tarkit", "cli") for path in sources(folder)}


def in_cli(module: str) -> bool:
    return module == "tarkit.cli" or module.startswith("tarkit.cli.")


def layer_is_known(module: str) -> bool:
    return module in LAYERS or in_cli(module)


def layer(module: str) -> int:
    return CLI_LAYER if in_cli(module) else LAYERS[module]


def imports(module: str, path: Path) -> Iterator[tuple[int, int, str]]:
    """(line, level, absolute module) of each import of this project's modules, wherever it stands."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in ("tarkit", "cli", "k8s_templates"):
                    yield node.lineno, 0, alias.name
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            source = ".".join(part for part in (base, node.module) if part)
            if source.split(".")[0] not in ("tarkit", "cli", "k8s_templates"):
                continue
            for alias in node.names:
                inner = f"{source}.{alias.name}"
                yield node.lineno, node.level, inner if inner in MODULES else source


def test_every_module_has_a_layer() -> None:
    missing = sorted(name for name in MODULES if not layer_is_known(name))
    assert not missing, f"add it to the table LAYERS of {Path(__file__).name}: {', '.join(missing)}"


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_point_down(module: str) -> None:
    if not layer_is_known(module):
        pytest.fail(f"add it to the table: {module}")
    wrong = []
    for line, level, target in imports(module, MODULES[module]):
        if target not in MODULES:
            wrong.append(f"line {line}: {target} is no module of this project")
        elif layer(module) == CLI_LAYER == layer(target):
            if not level:
                wrong.append(f"line {line}: cli imports {target} by name; write it relatively, as type checkers need")
        elif layer(module) == CLI_LAYER:
            if level:
                wrong.append(f"line {line}: cli imports {target} relatively; write tarkit.… in full")
        elif not layer_is_known(target):
            wrong.append(f"line {line}: add it to the table: {target}")
        elif layer(target) >= layer(module) and (module, target) not in SIDEWAYS:
            wrong.append(f"line {line}: {module} (layer {layer(module)}) imports {target} (layer {layer(target)})")
    assert not wrong, "\n".join(wrong)


def test_sideways_arrows_are_sideways_and_in_use() -> None:
    drawn = {(module, target) for module, path in MODULES.items() for _, _, target in imports(module, path)}
    for arrow, reason in SIDEWAYS.items():
        assert reason
        assert arrow in drawn, f"{arrow[0]} no longer imports {arrow[1]}: take it off the list"
        assert layer(arrow[0]) == layer(arrow[1]), f"{arrow[0]} -> {arrow[1]} is not sideways"


def test_the_table_names_no_module_that_is_gone() -> None:
    gone = sorted(set(LAYERS) - set(MODULES))
    assert not gone, f"take it off the table: {', '.join(gone)}"


def where_tarkit_is() -> Path:
    """The folder from which these tests import tarkit: the checkout, or where it is installed."""
    spec = importlib.util.find_spec("tarkit")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent.parent


def loaded_by(statement: str, folder: Path) -> set[str]:
    """Top-level names outside the standard library that a fresh interpreter loads for this statement."""
    program = (
        f"import sys; sys.path.insert(0, {str(where_tarkit_is())!r}); before = set(sys.modules)\n"
        f"{statement}\n"
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_import_tarkit_loads_only_the_standard_library(tmp_path: Path) -> None:
    assert loaded_by("import tarkit", tmp_path) == {"tarkit"}


def test_every_library_module_loads_only_the_standard_library(tmp_path: Path) -> None:
    names = [name for name in MODULES if not in_cli(name) and "integrations" not in name.split(".")]
    assert loaded_by(f"import {', '.join(names)}", tmp_path) == {"tarkit"}


def test_the_check_of_loaded_modules_can_fail(tmp_path: Path) -> None:
    assert loaded_by("import click", tmp_path) == {"click"}


@pytest.mark.parametrize("path", sources("tarkit"), ids=lambda path: module_name(path))
def test_no_file_is_named_for_nothing(path: Path) -> None:
    assert path.stem.strip("_") not in FORBIDDEN_NAMES, "name the file for its role"


@pytest.mark.parametrize("path", sources("tarkit") + sources("cli"), ids=lambda path: module_name(path))
def test_forbidden_statements(path: Path) -> None:
    wrong = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assert):
            wrong.append(f"line {node.lineno}: assert is removed by python -O; raise a class of tarkit.errors")
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            if any(name.split(".")[0] == "pickle" for name in names):
                wrong.append(f"line {node.lineno}: pickle executes what the data says")
        elif isinstance(node, ast.Call) and is_print(node) and not in_cli(module_name(path)):
            wrong.append(f"line {node.lineno}: the library does not print")
    assert not wrong, "\n".join(wrong)


def is_print(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "print"
