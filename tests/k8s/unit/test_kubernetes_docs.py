"""The pages on Kubernetes are true: commands run, tables are those of the code, links lead
somewhere.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from pathlib import Path

import pytest
from notebookdifferences import DIFFERENCES
from programs import commands

from tarkit.k8s.durations import in_words
from tarkit.k8s.local.policy import LocalJob
from tarkit.k8s.plan.shardlist import MOST_BYTES, list_config_map
from tarkit.k8s.plan.sliceplan import slice_count
from tarkit.k8s.settings import TABLE
from tarkit.k8s.templates import read_template, template_path

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
PAGES = ("kubernetes", "why-nothing-runs", "ten-million-shards", "exit-codes", "guarantees")
TEXTS = {name: (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in PAGES}
README = (ROOT / "README.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"<!-- command: (\w+)(?:, exit (\d+))? -->\n```sh\n(.*?)```", re.DOTALL)


def blocks(text: str) -> dict[str, tuple[str, int]]:
    """Marked commands of a page, and how they are to end."""
    return {name: (command, int(code or 0)) for name, code, command in _BLOCK.findall(text)}


GUIDE, MILLIONS = blocks(TEXTS["kubernetes"]), blocks(TEXTS["ten-million-shards"])


def rows(text: str, after: str) -> list[list[str]]:
    """The cells of the first table behind a text."""
    lines = text[text.index(after) :].splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("|"))
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    assert found
    return found


def test_the_pages_have_commands() -> None:
    assert len(GUIDE) >= 8
    assert len(MILLIONS) >= 10


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))], ids=lambda page: page.name)
def test_no_command_of_a_page_writes_over_the_file_of_another(page: Path) -> None:
    names: list[str] = []
    for block in re.findall(r"```(?:sh|bash)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        # What is in quotes runs elsewhere: in the folder of a sample.
        bare = re.sub(r"'[^']*'|#.*", "''", block)
        names += set(re.findall(r"(?<![-=0-9&>])> *([\w./-]+)", bare))
        names += set(re.findall(r"(?:tarproc|tarkit \w+) [^|;&]*?-o +([\w./-]+)", bare))
    assert sorted(names) == sorted(set(names))


def test_the_table_of_sizes() -> None:
    for shards_, at_once, sliced, each, rounds, work, took, hours in rows(TEXTS["ten-million-shards"], "table: sizes"):
        n, p = int(shards_.replace(",", "")), int(at_once.replace(",", ""))
        w = int(sliced.split()[0].replace(",", ""))
        assert slice_count(n, w if "--slices" in sliced else None) == w
        in_pod, waves = n / w * 41, -(-w // p)
        assert (f"{n / w:.1f}", str(waves)) == (each, rounds)
        assert (in_words(in_pod), in_words(max(waves * (in_pod + 10), w / 10))) == (work, took)
        found = w * (in_pod + 10) / 3600
        assert hours == (f"{found:.1f}" if found < 10 else f"{found:,.0f}")


def test_sizes_of_config_maps() -> None:
    numbered = [f"s3://bucket/raw/{number:06d}.tar" for number in range(50_000)]
    random = [f"s3://bucket/raw/{hashlib.md5(str(number).encode()).hexdigest()}.tar" for number in range(5000)]
    page = TEXTS["ten-million-shards"]
    for names, words in ((numbered, "50,000 numbered URLs take {} KiB"), (random, "hexadecimal digits {} KiB")):
        size = len(json.dumps(list_config_map("x", names, None, {}), separators=(",", ":")))
        assert words.format(round(size / 1024)) in page
    assert MOST_BYTES == 200 * 1024


def test_the_cost_of_ten_million() -> None:
    made = re.search(r"([\d,]+) × \(([\d.]+) \+ 4 × ([\d.]+)\) = ([\d,]+)", TEXTS["ten-million-shards"])
    assert made is not None
    hours, cpu, memory, cost = (float(each.replace(",", "")) for each in made.groups())
    assert round(hours * (cpu + 4 * memory)) == cost


def rules() -> LocalJob:
    (job,) = read_template(template_path("indexed"))
    return LocalJob(job)


def test_the_table_of_exit_codes_is_the_policy() -> None:
    policy, stated = rules(), {}
    for codes, meaning, action, local, _ in rows(TEXTS["exit-codes"], "## In Kubernetes"):
        assert meaning and local
        if codes == "any":
            assert policy.rules[0]["action"] == action and policy.rules[0]["onPodConditions"]
            continue
        stated[int(codes)] = action
        assert action == ("Success" if codes == "0" else policy.judge("p", int(codes))[0]), codes
    known = {code for rule in policy.rules for code in (rule.get("onExitCodes") or {}).get("values", ())}
    assert known <= set(stated)
    # What is not in the table counts.
    for code in set(range(1, 256)) - set(stated):
        assert policy.judge("p", code)[0] == "Count"


def test_all_exit_codes_of_tarproc_are_in_the_table_of_pods() -> None:
    general = {int(row[0]) for row in rows(TEXTS["exit-codes"], "# Exit codes")}
    pods = {row[0] for row in rows(TEXTS["exit-codes"], "## In Kubernetes")}
    # 130: nobody presses Ctrl-C in a pod.
    assert {str(code) for code in general - {130}} <= pods


def test_exit_codes_of_the_commands() -> None:
    """What a command's own help says is in the table."""
    stated: dict[str, set[int]] = {}
    for names, codes in rows(TEXTS["exit-codes"], "The codes of `kubetpl` itself"):
        numbers = {int(number) for number in re.findall(r"(?:^|[;,] )(\d+)\b", codes)}
        stated |= dict.fromkeys(re.findall(r"`(\w+)`", names), numbers)
    for verb in ("status", "wait", "logs", "retry", "scale", "cancel", "local"):
        command = importlib.import_module(f"tarkit.cli.kube.verbs.{verb}").command
        text = " ".join(f"{command.help}\n{command.epilog or ''}".split())
        told = {int(number) for number in re.findall(r"(?:^|; )(\d+) ", text.partition("Exit codes: ")[2])}
        assert told and told <= stated[verb], verb


def step_names(path: str) -> str:
    found = ""
    for step in path.split():
        name = f'"{step}"' if "." in step else step
        found += f"[{step}]" if step.isdigit() else f"{'.' if found else ''}{name}"
    return found


def test_all_differences_of_the_notebook_are_listed_with_their_reasons() -> None:
    listed = {row[0]: row for row in rows(TEXTS["kubernetes"], "## Differences in the notebook")}
    assert set(listed) == {f"`{step_names(path)}`" for path in DIFFERENCES}
    for path, (was, now, why) in DIFFERENCES.items():
        _, original, ours, reason = listed[f"`{step_names(path)}`"]
        assert reason == why
        for value, shown in ((was, original), (now, ours)):
            if value == "missing":
                assert shown == "–"
            elif value != "*":
                assert shown == f"`{value if isinstance(value, str) else json.dumps(value)}`"


OLD_FLAGS = """--config --print_config KUBETPL_* --name --command --cpu --memory --gpu --accelerator --image --env
--param --port --label --app --shell --config-map --config-map-path --hostname --subdomain --gac --restartpolicy --path
kubefcm TEMPLATE"""


def test_all_flags_of_the_original_are_in_the_table() -> None:
    first = " ".join(row[0] for row in rows(TEXTS["kubernetes"], "## The flags of 2019"))
    words = set(re.findall(r"[\w*.-]+", first))
    assert [flag for flag in OLD_FLAGS.split() if flag not in words] == []
    # And they still are flags.
    known = {flag for setting in TABLE.values() for flag in setting.flags}
    gone = {flag for flag in OLD_FLAGS.split() if flag.startswith("--")} - known
    assert gone == {"--config", "--print_config", "--path"}, "one is an option and not a setting, the others are gone"


def test_every_setting_is_on_the_guide() -> None:
    page = TEXTS["kubernetes"]
    assert [s.name for s in TABLE.values() if not re.search(rf"{re.escape(s.flag)}\b", page)] == []


def test_every_command_is_on_the_guide() -> None:
    from tarkit.cli.kubetpl import VERBS

    assert [name for names in VERBS.values() for name in names if f"kubetpl {name}" not in TEXTS["kubernetes"]] == []


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", [*PAGES, "README"])
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / "README.md" if page == "README" else DOCS / f"{page}.md"
    text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        there = path if not file else (path.parent / file).resolve()
        assert there.exists(), target
        if anchor:
            content = there.read_text(encoding="utf-8")
            headings = re.findall(r"^#+ (.*)$", content, re.MULTILINE)
            if "::: mkdocs-click" in content:
                headings = [name for name, _ in commands() if name.split()[0] == there.stem]
            assert anchor in map(slug, headings), target
