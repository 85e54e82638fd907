"""The arrows between the modules point down, and the house rules that a parser can hold."""

from __future__ import annotations

import ast
import functools
import gc
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

# The rooms, lowest level first, and the door of each: the modules that other rooms may import. A
# room imports only from its own level and from those above its line. "" is the room itself: a
# module of that name, or what its __init__ defines.
LEVELS: tuple[dict[str, str], ...] = (
    {"errors": "", "extras": "", "world": "", "names": "braces keywords outputnames redaction url"},
    {
        "store": "allocator cache cachedparts cachedread checksums childstart compression database entries faults "
        "fieldfile forks filepart frames http.guarded http.robots inplace packedfile publish rangedfile ranges read "
        "retry seekfile sinks temporary transfer trees waits wholefolder window"
    },
    {"specs": "inputset inputslice manifest outputcheck shardspec slicedlist"},
    {
        "formats": "datafolder example har parquet recordio registry sequencefile tablefile tabletext tally textrows "
        "tfrecord tar.headers tar.large tar.raw tar.resync tar.unread tar.walk"
    },
    {
        "samples": "cachedshard codecs content firstbytes gather images index indexedshard indexing pieces rawsamples "
        "read sample shardwriter tarwriter transforms"
    },
    {"mapping": "mappererrors output parallel pythonpool pythonworker removal scratch shellpool shellrules"},
    {"readers": "create identity ranged reader"},
    {"service": "checkpoint client connection dataset dispatcher leases ledger messages progress serve server"},
    {"runs": "account counts donerecord engine process progress progressbar runrecord status trial usedfiles work"},
    {
        "steps": "check classfolders contactsheet convert counting create demodata diff download drawing encoding "
        "explain export failedrows fieldvalues findings join keylists mixing parts picking prepare recordfiles "
        "rowshards salvage samplefiles select selection shardsoutput sourcefiles stats statsreport tablerows tables "
        "thumbnails where"
    },
    {
        "exchange": "blockshuffle cuts dedupslices digests exchange filtering forecast join keys output placing "
        "plan positions reduce runfile slicereader settings shuffle slices sort stagefiles step tableside "
        "workstatus"
    },
    {"trainers": "arrays audit feedtest lasterror loopnumbers shardmap"},
    {"spark": "records"},
    {"writer": "", "": ""},
    {"k8s": "*"},
    {"elasticdl": "mastercalls trainarguments zoo"},
    {"openpai": "*"},
    {"cli.shared": "*"},
    {"cli.rundisplay": ""},
    {"cli.tarproc": "", "cli.verbs": "", "cli.tarkit": ""},
    {"cli.sparkrecords": ""},
    {"spark.recordio_gen": ""},
    {"cli.kube": "generator"},
    {"cli.kubetpl": ""},
    {"__main__": ""},
)
ROOMS = {room: door for level in LEVELS for room, door in level.items()}
FOREIGN = ("elasticdl", "openpai")
"""Rooms of one foreign system each, which nothing but the programs imports."""
LEVEL_OF = {room: number for number, level in enumerate(LEVELS) for room in level}

# Names of public functions and classes that several modules have, because each plays the role in
# its own room.
ROLES = {
    "the functions of a place": "entries glob identify open_ranges open_read open_sink pinned read_range remove stat",
    "a library that does not retry by itself": "without_retries",
    "a format": "RecordWriter looks_like read_index read_named read_records read_sizes",
    "a run of a Work": "process",
    "the documents of a generator": "documents",
    "the command of a verb": "command",
    "the entry point of a program": "main",
}

FORBIDDEN_NAMES = ("utils", "common", "helpers", "base", "manager")


def sources(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found, f"no source files under {folder}/"
    return found


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module", autouse=True)
def _trees_end_here() -> Iterator[None]:
    """They are half of all objects that the garbage collector would look at in later tests.

    And while they are made, it takes three quarters of the time.
    """
    gc.disable()
    yield
    tree_of.cache_clear()
    # Its names are those of the trees, and each keeps the megabyte that it is in.
    imports.cache_clear()
    gc.enable()


def module_name(path: Path) -> str:
    """The name under which a file is installed: cli/x.py is tarkit.cli.x."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts if parts[0] == "tarkit" else ["tarkit", *parts])


MODULES = {module_name(path): path for folder in ("tarkit", "cli") for path in sources(folder)}


def in_cli(module: str) -> bool:
    return module == "tarkit.cli" or module.startswith("tarkit.cli.")


def room_of(module: str) -> tuple[str, str]:
    """(room, module inside it); tarkit.store.http.place is ("store", "http.place")."""
    inner = module.removeprefix("tarkit").removeprefix(".")
    found = [room for room in ROOMS if inner == room or inner.startswith(f"{room}.")]
    room = max(found, key=len, default="")
    return room, inner.removeprefix(room).removeprefix(".")


@functools.cache
def imports(module: str, path: Path) -> tuple[tuple[int, int, str], ...]:
    """Return (line, level, absolute module) of each import of this project's modules, anywhere."""
    return tuple(_imports(module, path))


def _imports(module: str, path: Path) -> Iterator[tuple[int, int, str]]:
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree_of(path)):
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


def imports_by_text(module: str, path: Path) -> Iterator[tuple[int, str]]:
    """(line, absolute module or package) of each one that a string names: for importlib, or after
    ``python -m``.
    """
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value.rstrip(".")
            name = f"{module.rpartition('.')[0]}{text}" if text.startswith(".") else text
            if name != "tarkit" and name.startswith("tarkit.") and name in MODULES:
                yield node.lineno, name


def test_every_module_is_in_a_room() -> None:
    homeless = [module for module in MODULES if room_of(module)[0] == "" and module not in ("tarkit", "tarkit.cli")]
    assert not homeless, f"add the room to LEVELS: {', '.join(homeless)}"
    empty = {*ROOMS} - {room_of(module)[0] for module in MODULES}
    assert not empty, f"no module is in it; take it out of LEVELS: {', '.join(empty)}"


def fault_of_import(module: str, level: int, target: str) -> str | None:
    """What is wrong with one import; level: of a relative one, else 0."""
    room, (target_room, name) = room_of(module)[0], room_of(target)
    if target not in MODULES:
        return "is not a module of this project"
    if bool(level) != (in_cli(module) and in_cli(target)):
        return "cli/ imports its own modules relatively and the library in full"
    if room == target_room:
        return None
    if LEVEL_OF[target_room] > LEVEL_OF[room]:
        return "is above"
    if target_room in FOREIGN and not in_cli(module):
        return "is imported by cli/ only"
    if name and ROOMS[target_room] != "*" and name not in ROOMS[target_room].split():
        return f"is not in the door of {target_room}"
    return None


def test_imports_point_down_and_go_through_doors() -> None:
    wrong = [
        f"{module}, line {line}: {target}: {fault}"
        for module, path in MODULES.items()
        for line, level, target in imports(module, path)
        if (fault := fault_of_import(module, level, target)) is not None
    ]
    assert not wrong, "\n".join(wrong)


def test_modules_that_a_string_names_are_below() -> None:
    found = [
        (module, line, target) for module, path in MODULES.items() for line, target in imports_by_text(module, path)
    ]
    assert ("tarkit.store.registry", "tarkit.store") in {(module, target) for module, _, target in found}
    wrong = [
        f"{module}, line {line}: {target} is above"
        for module, line, target in found
        if LEVEL_OF[room_of(target)[0]] > LEVEL_OF[room_of(module)[0]]
    ]
    assert not wrong, "\n".join(wrong)


def test_no_module_imports_itself_by_a_detour() -> None:
    arrows = {module: {target for _, _, target in imports(module, path)} for module, path in MODULES.items()}
    for package in [module for module, path in MODULES.items() if path.name == "__init__.py"]:
        # That a package's __init__ imports its modules when they are asked for is not a circle.
        arrows[package] = set()
    try:
        tuple(graphlib.TopologicalSorter(arrows).static_order())
    except graphlib.CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_every_door_is_in_use() -> None:
    crossed = {
        room_of(target)
        for module, path in MODULES.items()
        for _, _, target in imports(module, path)
        if room_of(target)[0] != room_of(module)[0]
    }
    doors = {(room, name) for room, door in ROOMS.items() for name in door.split() if name != "*"}
    unused = sorted(".".join(door) for door in doors - crossed)
    assert not unused, f"no other room imports it; take it out of LEVELS: {', '.join(unused)}"


def test_every_file_is_named_for_its_role() -> None:
    wrong = [str(path) for path in sources("tarkit") if path.stem.strip("_") in FORBIDDEN_NAMES]
    assert not wrong, f"name the file for its role: {', '.join(wrong)}"


def public_definitions(path: Path) -> set[str]:
    body = tree_of(path).body
    return {
        node.name
        for node in body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")
    }


def test_public_names_are_shared_only_by_those_that_play_the_same_role() -> None:
    places: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for name in public_definitions(path):
            places.setdefault(name, []).append(module)
    shared = {name for name, modules in places.items() if len(modules) > 1}
    roles = {name for names in ROLES.values() for name in names.split()}
    wrong = [f"{name}: {', '.join(places[name])}" for name in sorted(shared - roles)]
    assert not wrong, "rename the less public one:\n" + "\n".join(wrong)
    assert not roles - shared, f"one module has it; take it out of ROLES: {', '.join(sorted(roles - shared))}"


def faults_of_statements(module: str, path: Path) -> Iterator[str]:
    of_cli = in_cli(module)
    for node in ast.walk(tree_of(path)):
        fault = None
        if isinstance(node, ast.Assert):
            fault = "assert is removed by python -O; raise a class of tarkit.errors"
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            if any(name.split(".")[0] == "pickle" for name in names):
                fault = "pickle executes what the data says"
        elif isinstance(node, ast.Call) and is_print(node) and not of_cli:
            fault = "the library does not print"
        elif isinstance(node, ast.arg) and of_cli and node.arg in ("options", "flags") and is_dict(node.annotation):
            fault = "a dict of options stays in the function that click calls"
        if fault is not None:
            yield f"{module}, line {node.lineno}: {fault}"


def test_forbidden_statements() -> None:
    wrong = [fault for module, path in MODULES.items() for fault in faults_of_statements(module, path)]
    assert not wrong, "\n".join(wrong)


def is_dict(annotation: ast.expr | None) -> bool:
    return annotation is not None and ast.unparse(annotation).startswith(("dict[", "Mapping["))


def is_print(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "print"
