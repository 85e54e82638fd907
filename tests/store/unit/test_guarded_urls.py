"""URLs of tables, and the addresses that are refused."""

from __future__ import annotations

import pytest

from tarkit.store.http.guarded import FailedFetch, _check_host, is_allowed, requested_url


@pytest.mark.parametrize(
    ("url", "requested"),
    [
        (" http://h/a b.jpg\n", "http://h/a%20b.jpg"),
        ("http://h/a%20b.jpg", "http://h/a%20b.jpg"),
        ("http://h/100%.jpg", "http://h/100%25.jpg"),
        ("http://h/a#b.jpg", "http://h/a"),
        ("http://h/a?x=%2F&y=/#z", "http://h/a?x=%2F&y=/"),
        ("http://b\u00fccher.example/\u00e4.jpg", "http://xn--bcher-kva.example/%C3%A4.jpg"),
        ("HTTP://H:80/x", "http://h:80/x"),
        ("http://[::1]:8080/x", "http://[::1]:8080/x"),
        ("http://u:p@h/x", "http://u:p@h/x"),
        ('https://h/a\\b|c"<>`^{}', "https://h/a%5Cb%7Cc%22%3C%3E%60%5E%7B%7D"),
        ("http://h", "http://h/"),
        ("http://h?x", "http://h/?x"),
        ("http://10.0.0.1:65535/a.jpg", "http://10.0.0.1:65535/a.jpg"),
    ],
)
def test_what_is_requested(url: str, requested: str) -> None:
    assert requested_url(url) == requested
    assert requested_url(requested) == requested


@pytest.mark.parametrize(
    "url", ["", "a.jpg", "file:///etc/passwd", "ftp://h/x", "http://", "http://h:x/", "http://h:99999/", "//h/x"]
)
def test_what_is_not_requested(url: str) -> None:
    with pytest.raises(FailedFetch) as caught:
        requested_url(url)
    assert caught.value.reason == "url"
    assert not caught.value.again


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.100.100.200", "0.0.0.0"),
        *("168.63.129.16", "192.0.0.192", "224.0.0.1", "255.255.255.255", "240.0.0.1"),
        *("::1", "::", "fe80::1%eth0", "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254"),
        *("64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2001:db8::1", "2001::1", "fec0::1", "64:ff9b:1::a00:1"),
        # The deprecated forms of 127.0.0.1 in IPv6 (RFC 4291, 2.5.5.1; RFC 2765).
        *("::127.0.0.1", "::ffff:0:127.0.0.1"),
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_allowed(address, False)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "8.8.8.8", "2606:4700:4700::1111", "64:ff9b::101:101", "::ffff:1.1.1.1"]
)
def test_addresses_that_are_public(address: str) -> None:
    assert is_allowed(address, False)


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("10.0.0.1", True), ("127.0.0.1", True), ("fd00::1", True), ("8.8.8.8", True), ("169.254.169.254", False),
        ("169.254.170.2", False), ("168.63.129.16", False), ("192.0.0.192", False), ("100.100.100.200", False),
        ("fd00:ec2::254", False), ("fd20:ce::254", False), ("::ffff:169.254.169.254", False),
    ],
)  # fmt: skip
def test_metadata_services_are_refused_with_private_addresses_allowed(address: str, allowed: bool) -> None:
    assert is_allowed(address, True) is allowed


@pytest.mark.parametrize(
    "host", ["2852039166", "0xa9fea9fe", "0xa9.0xfe.0xa9.0xfe", "0251.0376.0251.0376", "127.1", "0x7f.1", "1.0X1", "0x"]
)
def test_hosts_that_some_programs_take_for_addresses(host: str) -> None:
    with pytest.raises(FailedFetch, match="its host is a number"):
        _check_host(host, allow_private=False)


@pytest.mark.parametrize("host", ["127.0.0.1.example", "0x7f.com", "1.x1", "x", "1.1.1.1"])
def test_hosts_that_are_not_numbers(host: str) -> None:
    _check_host(host, allow_private=False)
