"""URLs and commands as they may be shown: no part of a secret, and nothing else missing."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable

import pytest

from tarkit.names.redaction import redact, redact_text, secrets_in
from tarkit.store.foreign import without_secrets
from tarkit.store.hdfs.resturl import parse_address

SEED = 20240613
ROUNDS = 3000
CAPITALS = "ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖ"
OBJECTS = ("s3", "s3a", "gs", "abfs", "hdfs", "webhdfs", "sftp", "memory")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://b/k.tar", "s3://b/k.tar"),
        ("https://u:p@h/x", "https://h/x"),
        ("https://me@example.com:p@h/x", "https://h/x"),
        ("https://h/x?a=1&b=2;c=3", "https://h/x?a=…&b=…"),
        ("https://h/x?token", "https://h/x?…"),
        ("https://h/x?dG9rZW4=", "https://h/x?…"),
        ("https://h/x?t0k/3n=1", "https://h/x?…"),
        ("https://h/x?", "https://h/x?…"),
        ("https://h/x?a=1#token", "https://h/x?a=…#…"),
        ("https://h/x#token", "https://h/x#…"),
        ("https://h/x#a?b", "https://h/x#…"),
        ("s3://b/k#1.tar", "s3://b/k#1.tar"),
        ("s3://b/2024-01-01T00:00/a@b.tar", "s3://b/2024-01-01T00:00/a@b.tar"),
        ("http://[::1]:80/x?sig=a::b", "http://[::1]:80/x?sig=…"),
        ("http://u:p@[::1]:80/x", "http://[::1]:80/x"),
        ("http://[::1]:80/a@b.tar", "http://[::1]:80/a@b.tar"),
        ("simplecache::s3://u:p@b/x?v=1", "simplecache::s3://b/x?v=…"),
        ("filecache::s3://u:p/w@b/x", "filecache::s3://…@b/x"),
        ("zip://a.tar::simplecache::https://u:p@h/x.zip?s=1", "zip://a.tar::simplecache::https://h/x.zip?s=…"),
        ("zip://a/a@b#1::https://h/x.zip#t", "zip://a/a@b#1::https://h/x.zip#…"),
        ("@https://u:p@h/list", "@https://h/list"),
        (" https://u:p@h/x", " https://h/x"),
        ("pipe:true", "pipe:true"),
        ("pipe:curl -H token", "pipe:curl …"),
        (" pipe:curl -H token", "pipe:curl …"),
        ("@pipe:curl -H token", "@pipe:curl …"),
        ("pipe:T=token curl", "pipe:…"),
        ("pipe:", "pipe:…"),
        ("dir/what?is=this", "dir/what?is=this"),
        ("a::b", "a::b"),
        # A password with a blank, a slash, a mark.
        ("s3://u:p w@b/x", "s3://b/x"),
        ("s3://u:p/w@b/x", "s3://…@b/x"),
        ("s3://u:p#w@b/x", "s3://b/x"),
        ("https://u:p::http://w@h/x", "https://…@h/x"),
        ("s3://u:p@", "s3://"),
        # A port, a mail address in a path, or a password with a slash.
        ("http://h:80/me@x/y?a=1", "http://…@x/y?a=…"),
        # What follows the "@" may be the host, or the end of a token.
        ("https://u:p?w@h/x", "https://…@…"),
        ("http://h?t=a@b", "http://…@…"),
        ("http://h:80/x#a@b", "http://…@…"),
        # A semicolon may be a part of a value, or begin a parameter of a path.
        ("https://h/x?sig=a;token=1", "https://h/x?sig=…"),
        ("https://h/x?token;a=1", "https://h/x?…"),
        ("https://h/x?dG9rZW4=;a=1", "https://h/x?…"),
        ("https://h/a;jsessionid=token/b;c?d=1", "https://h/a;jsessionid=…/b;c?d=…"),
        ("s3://b/a;c=d", "s3://b/a;c=d"),
        # What was to be a URL.
        ("http:/u:p@h/x", "http:/h/x"),
        ("HTTP:u:p@h/x", "HTTP:h/x"),
        ("http:///u:p@h/x", "http:///h/x"),
        ("http//u:p@h/x", "http//h/x"),
        (r"http:\\u:p@h\x", r"http:\\h\x"),
        ("https:/token@h/x", "https:/h/x"),
        ("https:/h/x?sig=1#t", "https:/h/x?sig=…#…"),
        ("simplecache::http:/u:p@h/x", "simplecache::http:/h/x"),
        ("@http:/u:p@h/list", "@http:/h/list"),
        ("s3:/u:p@b/x", "s3:/b/x"),
        ("myfs:/u:p@b/x", "myfs:/b/x"),
        ("file:///a:b@c.tar", "file:///a:b@c.tar"),
        ("train:/a@b.tar", "train:/a@b.tar"),
        # Several.
        ("http://h/a|http://u:p@h/b", "http://h/a|http://h/b"),
        ("https://h/web/http://u:p@h/b", "https://h/web/http://h/b"),
    ],
)
def test_a_url_is_shown_without_what_may_be_secret(url: str, shown: str) -> None:
    assert redact(url) == shown
    assert redact(shown) == shown


def secret(rng: random.Random, others: str) -> str:
    """Three characters or more, a capital letter among them: nothing else in these URLs has one."""
    pieces = [rng.choice(CAPITALS + CAPITALS + "0189" + others) for _ in range(rng.randint(2, 12))]
    pieces.insert(rng.randrange(len(pieces)), rng.choice(CAPITALS))
    return "".join(pieces)


def plain(rng: random.Random, others: str = "") -> str:
    return "".join(rng.choice("abcdexyz0189.-_" + others) for _ in range(rng.randint(1, 10)))


def host(rng: random.Random) -> str:
    name = rng.choice([plain(rng), "example.com", "[::1]", "[fe80::1%eth0]", "127.0.0.1"])
    return name + rng.choice(["", "", ":80", ":9870"])


def path(rng: random.Random, others: str = "@#: ") -> str:
    return "".join(f"/{plain(rng, others)}" for _ in range(rng.randint(0, 3)))


def query(rng: random.Random) -> str:
    names = [rng.choice(["sig=", "x-amz-signature=", "t.k[0]=", "", "versionid="]) for _ in range(rng.randint(1, 3))]
    return "?" + rng.choice("&;").join(name + secret(rng, "/#?@:%+ ") + rng.choice(["", "=="]) for name in names)


def user(rng: random.Random) -> str:
    name = secret(rng, "@#? %") if rng.random() < 0.8 else ""
    # After "::", a scheme would be the next link of a chain.
    password = secret(rng, "/#?@:%+=& ").lstrip(":") + rng.choice(["", "::https://X", "://Y", "::X::"])
    return f"{name}:{password}@" if rng.random() < 0.8 else f"{secret(rng, '%#?')}@"


def with_secrets(rng: random.Random) -> str:
    scheme = rng.choice((*OBJECTS, "http", "https", "HTTPS"))
    scheme = scheme.lower()
    parts = [user(rng), query(rng), f"#{secret(rng, '/#?@:%+=& ')}" if scheme.startswith("http") else ""]
    kept = [part if rng.random() < 0.6 else "" for part in parts]
    if not any(kept):
        return with_secrets(rng)
    before = rng.choice(
        ["", "", "", "@", " ", "simplecache::", "filecache::", f"zip://{plain(rng)}::", "zip://a::s3://b::"]
    )
    return f"{before}{scheme}://{kept[0]}{host(rng)}{path(rng)}{kept[1]}{kept[2]}"


def without(rng: random.Random) -> str:
    scheme = rng.choice(OBJECTS)
    before = rng.choice(["", "", "@", "simplecache::", f"zip://{plain(rng)}{path(rng)}::"])
    return rng.choice(
        [
            f"{before}{scheme}://{plain(rng)}{path(rng)}",
            f"{before}http://{host(rng)}{path(rng, others=': ')}",
            f"{before}{scheme}://{host(rng)}{path(rng, others=':# ')}",
            path(rng, others="@#:? ") or "a",
            f"./{plain(rng, '@#:?& ')}",
            plain(rng),
        ]
    )


@functools.cache
def rounds(make: Callable[[random.Random], str]) -> list[str]:
    rng = random.Random(SEED)
    return [make(rng) for _ in range(ROUNDS)]


def test_no_character_of_a_secret_is_shown() -> None:
    for url in rounds(with_secrets):
        shown = redact(url)
        assert not any(c in CAPITALS or c in "XY" for c in shown), (url, shown)


def test_what_was_redacted_stays_as_it_is() -> None:
    for url in (*rounds(with_secrets), *rounds(without), *rounds(lambda rng: plain(rng, "://@#?&;=…[]pipe: "))):
        shown = redact(url)
        assert redact(shown) == shown, url


def test_what_has_no_secret_is_shown_whole() -> None:
    for url in rounds(without):
        assert redact(url) == url
        assert secrets_in(url) == []


def test_a_message_that_repeats_a_url_or_a_part_of_it_shows_no_secret() -> None:
    for url in rounds(with_secrets)[:600]:
        for part in (url, *(each for each in secrets_in(url) if len(each) >= 3)):
            shown = without_secrets(f"can not open {part!r}: no such host", url)
            assert not any(c in CAPITALS for c in shown), (url, part, shown)


COMMAND = "curl -H 'X-Key: ab c' -u me:hunter2 --pin=123 \"https://h/x?t=S3\" | tar xf - nosuch.tar"


def test_the_words_of_a_command_are_taken_out_of_what_it_says() -> None:
    said = "tar: nosuch.tar: bad key 'ab c', X-Key, hunter2, pin 123 of 1234"
    assert without_secrets(said, f"pipe:{COMMAND}") == "tar: …: bad key '…', …, …, pin … of 1234"


def test_names_of_programs_and_files_stay(tmp_path: object) -> None:
    said = f"cat: {tmp_path}/gone.tar: No such file or directory"
    assert without_secrets(said, f"pipe:TOKEN=x cat {tmp_path}/gone.tar") == said
    assert without_secrets("cat: /aB3/dEf=: no", "pipe:cat /aB3/dEf=") == "cat: …: no"


def test_a_quote_that_is_not_closed() -> None:
    assert without_secrets("bash: unexpected EOF after 't0ken", "pipe:cat 't0ken") == "bash: unexpected EOF after …"


def test_arguments_that_a_message_repeats() -> None:
    words = ["-v", "--output=https://me:a b@h/x", "s3://k:a b@h/y", "plain"]
    said = "no plain https://me:a b@h/x or s3://k:a b@h/y, http://u:p@i"
    assert redact_text(said, words) == "no plain https://h/x or s3://h/y, http://i"


def test_a_user_of_webhdfs_without_a_password_is_named() -> None:
    said = "permission denied: user=alice, access=WRITE, inode=/x@y"
    assert without_secrets(said, parse_address("webhdfs://alice@h/x@y")[0].secrets) == said
    assert without_secrets(said, parse_address("swebhdfs://alice:pw1@h/x@y")[0].secrets).startswith(
        "permission denied: user=…"
    )


@pytest.mark.parametrize(
    "text",
    [
        "cannot open http:/u:CANARY@h/x: no such file",
        r'{"url": "https:\/\/u:CANARY@h\/x", "other": 1}',
        "GET https://h/x?a=1;CANARY=2 failed",
        "http://h/a,http://u:CANARY@h/b;http://v:CANARY@h/c",
        "(http:/h/x?X-AMZ-Credential=CANARY)",
        "arn:aws:s3:::b is not http:u:CANARY@h",
        "http://h/" + "http://u:CANARY@h/" * 200,
    ],
)
def test_urls_in_a_sentence_of_a_library(text: str) -> None:
    assert "CANARY" not in redact_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "s3:GetObject on arn:aws:s3:::b/k?x",
        "http: a@b",
        "at 12:30: a@b",
        "Error:/x: a@b",
        "C:/x:y@z",
        "see https: what?",
    ],
)
def test_a_sentence_without_a_url_stays(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize("piece", ["http:", "http:/", "http://", "|http://h/x", "a:", "a:/b:", ";a=b", "http:/a,"])
def test_a_long_text_takes_no_long_time(piece: str) -> None:
    text = piece * (30_000 // len(piece))
    begin = time.process_time()
    redact_text(text), redact(text)
    assert time.process_time() - begin < 5
