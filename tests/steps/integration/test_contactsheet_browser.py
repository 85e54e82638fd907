"""Contact sheets in a real browser, from disk: nothing in the data becomes an element or runs."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tarkit.steps.contactsheet import contact_sheet
from tarkit.steps.htmlpage import page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed, so no page can be opened")


class Elements(HTMLParser):
    """The elements of a document, as tags, and all text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on")], "a handler"

    def handle_data(self, data: str) -> None:
        self.text += data


def opened(content: bytes, folder: Path) -> tuple[str, list[str]]:
    """The document after its scripts have run, and what they and the policy reported."""
    path = folder / "page.html"
    path.write_bytes(content)
    command = [
        *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"),
        *("--enable-logging=stderr", "--virtual-time-budget=2000", "--dump-dom", path.as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def shown(document: str) -> Elements:
    """The elements without the block of data, which is as it was written."""
    return Elements(
        re.sub(r'(<script type="application/json"[^>]*>).*?(?=</script>)', r"\1", document, flags=re.DOTALL)
    )


HOSTILE = [
    "</script><script>document.title = 'owned'</script>",
    "<img src=x onerror=\"document.title = 'owned'\">",
    "<svg onload=\"document.title = 'owned'\"></svg>",
    "<!--<script>",
    "javascript:document.title='owned'",
    "\u202egnp\u200b.exe\x00\x1b[2J\ud800",
]


def test_hostile_keys_and_texts_are_only_text(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image").new("RGB", (64, 48))
    stream = io.BytesIO()
    image.save(stream, "JPEG")
    samples = [
        {
            "__key__": text,
            "__url__": text,
            "jpg": stream.getvalue(),
            "txt": text.encode("utf-8", "replace"),
            "cls": text.encode("utf-8", "replace"),
            "svg": HOSTILE[2].encode(),
            text.replace("/", ""): b"value",
            f"{text}.wav": b"RIFF",
        }
        for text in [*HOSTILE, "x" * 1_000_000]
    ]
    document, reports = opened(contact_sheet(samples, title=HOSTILE[0]).page, tmp_path)
    assert reports == []
    found = shown(document)
    counts = {tag: found.tags.count(tag) for tag in ("img", "audio", "video", "svg", "script", "iframe", "link", "li")}
    assert counts == {"img": 7, "audio": 7, "video": 0, "svg": 0, "script": 2, "iframe": 0, "link": 0, "li": 7}
    assert "owned'</script>" in found.text, "the title, and a key"
    assert "\\u{202e}gnp\\u{200b}.exe\\u{0}\\u{1b}[2J\\u{d800}" in found.text
    assert not {"\u202e", "\u200b", "\x1b"} & set(found.text)
    assert "7 of 7 samples" in found.text


def test_only_the_first_samples_are_made_at_once(tmp_path: Path) -> None:
    samples = ({"__key__": f"k{number}", "__url__": "s.tar", "cls": b"%d" % (number % 4)} for number in range(2000))
    document, reports = opened(contact_sheet(samples, title="t").page, tmp_path)
    assert reports == []
    found = shown(document)
    assert found.tags.count("li") in range(120, 481)
    assert "2,000 of 2,000 samples" in found.text and "3 (500)" in found.text


def test_the_policy_blocks_what_an_error_of_ours_would_let_in(tmp_path: Path) -> None:
    """Also the proof that reports are seen: each of these makes one."""
    body = (
        "<p>t</p><script>document.title = 'owned'</script><img src=x onerror=\"document.title = 'owned'\">"
        "<img src='http://127.0.0.1:9/a.png'><base href='http://127.0.0.1:9/'>"
    )
    content = page("safe", body, [], "document.querySelector('p').textContent = 'ran'; missing();", "")
    document, lines = opened(content, tmp_path)
    assert "<title>safe</title>" in document and "<p>ran</p>" in document
    reports = "\n".join(lines)
    assert "missing is not defined" in reports
    for rule in ("script-src", "img-src", "base-uri"):
        assert rule in reports, rule
