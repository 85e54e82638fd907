"""Rules of robots.txt and X-Robots-Tag."""

from __future__ import annotations

import time
import urllib.robotparser

import pytest

from tarkit.store.http.robots import Robots, opts_out

# The example of RFC 9309, 5.1, with the token of this program in the place of foobot.
RFC = """\
User-Agent: *
Disallow: *.gif$
Disallow: /example/
Allow: /publications/

User-Agent: tarkit
Disallow:/
Allow:/example/page.html
Allow:/example/allowed.gif

User-Agent: barbot
User-Agent: bazbot
Disallow: /example/page.html

User-Agent: quxbot
"""


@pytest.mark.parametrize(
    ("agent", "path", "allowed"),
    [
        ("other", "/a.gif", False),
        ("other", "/a.gif?x", True),
        ("other", "/example/a", False),
        ("other", "/publications/a", True),
        ("tarkit", "/a", False),
        ("TARKIT", "/example/page.html", True),
        ("tarkit", "/example/allowed.gif", True),
        ("barbot", "/example/page.html", False),
        ("bazbot", "/example/page.html", False),
        ("bazbot", "/a", True),
        ("quxbot", "/example/a", True),
    ],
)
def test_the_example_of_the_standard(agent: str, path: str, allowed: bool) -> None:
    assert Robots(RFC, agent).allows(path) is allowed


@pytest.mark.parametrize(
    ("rules", "path", "allowed"),
    [
        ("", "/a", True),
        ("Disallow:", "/a", True),
        ("Disallow: /", "/", False),
        ("Disallow: /a", "/ab", False),
        ("Disallow: /a$", "/ab", True),
        ("Disallow: /a$", "/a", False),
        ("Disallow: /*/private*.jpg$", "/x/private/1.jpg", False),
        ("Disallow: /*/private*.jpg$", "/x/private/1.jpg?w=1", True),
        ("Disallow: /x*x$", "/x", True),
        ("Disallow: /x*x$", "/xx", False),
        ("Disallow: /p\nAllow: /p", "/p", True),
        ("Disallow: /p/*\nAllow: /p", "/p/1", False),
        ("Disallow: /a%20b", "/a%20b/c", False),
        ("Disallow: /caf\u00e9", "/caf%C3%A9", False),
        ("disallow : /a # not this\nCrawl-delay: 3", "/a", False),
        ("Sitemap: https://x/y.xml\nDisallow: /a", "/a", False),
    ],
)
def test_patterns(rules: str, path: str, allowed: bool) -> None:
    assert Robots(f"\ufeffUser-agent: *\r\n{rules}", "tarkit").allows(path) is allowed


@pytest.mark.parametrize("path", ["/", "/a", "/a/b.jpg", "/b/c", "/b/d", "/q?x=1", "/q"])
def test_plain_rules_are_those_of_the_standard_library(path: str) -> None:
    text = "User-agent: x\nDisallow: /\n\nUser-agent: tarkit\nDisallow: /a/\nDisallow: /b/c\nDisallow: /q?x\n"
    peer = urllib.robotparser.RobotFileParser()
    peer.parse(text.splitlines())
    assert Robots(text, "tarkit").allows(path) == peer.can_fetch("tarkit", f"https://h{path}")


def test_groups_of_one_agent_are_joined() -> None:
    robots = Robots("User-agent: tarkit\nDisallow: /a\n\nUser-agent: x\nUser-agent: tarkit\nDisallow: /b", "tarkit")
    assert [robots.allows(path) for path in ("/a", "/b", "/c")] == [False, False, True]


def test_a_hostile_pattern_takes_no_time() -> None:
    robots = Robots("User-agent: *\nDisallow: /" + "*a" * 10_000 + "b$", "tarkit")
    begun = time.process_time()
    assert robots.allows("/" + "a" * 100_000)
    assert time.process_time() - begun < 1


@pytest.mark.parametrize(
    ("values", "out"),
    [
        ([], False),
        (["all"], False),
        (["noai"], True),
        (["NoImageAI"], True),
        (["nofollow, noindex"], True),
        (["otherbot: noimageindex"], True),
        (["nofollow", "googlebot: nosnippet, noai"], True),
        (["none"], True),
        (["unavailable_after: 25 Jun 2030 15:00:00 PST"], False),
        (["noarchive, max-snippet: -1"], False),
    ],
)
def test_opt_out_headers(values: list[str], out: bool) -> None:
    assert opts_out(values) is out
