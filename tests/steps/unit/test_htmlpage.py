"""Pages: the data cannot leave its block, the policy names the script, and texts are escaped."""

from __future__ import annotations

import base64
import hashlib
import json
from html.parser import HTMLParser

import pytest

from tarkit.steps.htmlpage import page, text_html


class Page(HTMLParser):
    """The elements of a page, as the standard library's parser sees them."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.tags = [""]
        self.texts: dict[str, str] = {}
        self.policy = ""
        self.feed(content.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(values.get("id") or tag)
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = values["content"] or ""

    def handle_data(self, data: str) -> None:
        self.texts[self.tags[-1]] = self.texts.get(self.tags[-1], "") + data


HOSTILE = "</script><img src=x onerror=alert(1)><!--<script>]]>\u202e\ud800"


def test_the_data_stays_in_its_block() -> None:
    found = Page(page(HOSTILE, "<main></main>", {"key": HOSTILE}, "console.log(1 < 2);", "b{}"))
    assert found.tags[1:] == [
        "html",
        "head",
        "meta",
        "meta",
        "meta",
        "meta",
        "title",
        "style",
        "body",
        "main",
        "data",
        "script",
    ]
    assert json.loads(found.texts["data"]) == {"key": HOSTILE}
    assert found.texts["title"].rstrip() == "</script><img src=x onerror=alert(1)><!--<script>]]>\\u202e\\ud800"
    assert found.texts["style"].rstrip().endswith("b{}")


def test_the_policy_allows_the_script_and_nothing_else_of_the_kind() -> None:
    found = Page(page("t", "", [], "console.log(1 < 2);", ""))
    assert found.texts["script"].rstrip().endswith("console.log(1 < 2);")
    digest = base64.b64encode(hashlib.sha256(found.texts["script"].removesuffix("\n").encode()).digest()).decode()
    rules = dict(rule.split(" ", 1) for rule in found.policy.split("; "))
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert "http" not in found.policy


def test_text_html() -> None:
    assert text_html("<b a='1'>\x00\u200bé") == "&lt;b a=&#x27;1&#x27;&gt;\\x00\\u200bé"


def test_a_number_that_json_does_not_have_is_an_error() -> None:
    with pytest.raises(ValueError, match="JSON"):
        page("t", "", {"mean": float("nan")}, "", "")
