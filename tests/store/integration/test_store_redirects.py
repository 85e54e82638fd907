"""Redirects of object stores: never to another host, neither with credentials nor with the body of
an upload.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lyingstore import KINDS, NAMES, Answer, LyingStore, host_of, lying_store, serving
from times import fast

from tarkit.errors import GivenUpError, TarkitError
from tarkit.store.entries import entries, stat
from tarkit.store.objects import place
from tarkit.store.objects.filesystem import ask
from tarkit.store.read import open_read

DATA = b"0123456789" * 1000
CODES = (301, 307)


@pytest.fixture
def elsewhere() -> Iterator[LyingStore]:
    """Another host, which answers everything as a store would, and records what it gets."""
    with serving(LyingStore("s3", b"x" * len(DATA))) as recorder:
        yield recorder


@pytest.fixture(params=KINDS, scope="module")
def running(request: pytest.FixtureRequest) -> Iterator[LyingStore]:
    """Shared, since making a client of S3 takes a third of a second."""
    with lying_store(request.param, DATA) as store:
        yield store


@pytest.fixture
def store(running: LyingStore) -> LyingStore:
    running.begin(DATA)
    return running


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking and listing have two attempts, and no waits."""
    monkeypatch.setitem(ask.__kwdefaults__, "retry", fast(attempts=2))  # type: ignore[arg-type]


def read_all(kind: str, links: str = "") -> bytes:
    with open_read(links + NAMES[kind], compression=None, retry=fast(attempts=2)) as stream:
        return b"".join(iter(lambda: stream.read(1 << 18), b""))


@pytest.mark.parametrize("code", CODES)
def test_a_get_is_not_redirected(store: LyingStore, elsewhere: LyingStore, code: int) -> None:
    def moved(answer: Answer) -> None:
        answer.status, answer.headers = code, {"Location": f"{elsewhere.url}/b/x.tar"}

    store.lies = [moved] * 9
    with pytest.raises(GivenUpError, match=rf"redirect \({code}\) to {host_of(elsewhere.url)}, which is not followed"):
        read_all(store.kind)
    assert elsewhere.asked == []
    store.lies = [moved]
    assert read_all(store.kind) == DATA
    assert elsewhere.asked == []


@pytest.mark.parametrize("code", CODES)
def test_neither_looking_nor_listing_is_redirected(store: LyingStore, elsewhere: LyingStore, code: int) -> None:
    store.redirect = dict.fromkeys(("HEAD", "GET"), (code, {"Location": f"{elsewhere.url}/b/x.tar"}))
    for call in (lambda: stat(NAMES[store.kind]), lambda: list(entries(NAMES[store.kind].rpartition("/")[0]))):
        with pytest.raises(TarkitError, match=r"redirect|30"):
            call()
    assert elsewhere.asked == []


@pytest.mark.parametrize("code", CODES)
def test_the_body_of_an_upload_goes_nowhere_else(store: LyingStore, elsewhere: LyingStore, code: int) -> None:
    store.redirect = dict.fromkeys(("PUT", "POST"), (code, {"Location": f"{elsewhere.url}/b/y.tar"}))
    sink = place.open_sink(NAMES[store.kind].replace("x.tar", "y.tar"), "y.tar", retry=fast(attempts=2))
    sink.write(DATA)
    with pytest.raises(TarkitError, match=r"redirect|30"):
        sink.commit()
    sink.discard()
    assert elsewhere.asked == []
    assert any(method in ("PUT", "POST") for method, _, _ in store.asked)


def test_a_bucket_in_another_region_is_asked_there_by_the_protocol_of_s3(elsewhere: LyingStore) -> None:
    """And not at the place that the answer names."""
    with lying_store("s3", DATA) as store:
        answer = store.answer

        def only_signed_for_its_region(method: str, path: str, asked: dict[str, str]) -> Answer:
            if "/eu-west-1/s3/" in asked["authorization"]:
                return answer(method, path, asked)
            return Answer(307, {"Location": elsewhere.url, "x-amz-bucket-region": "eu-west-1"}, b"")

        store.answer = only_signed_for_its_region  # type: ignore[method-assign]
        assert read_all("s3") == DATA
    assert elsewhere.asked == []


def test_a_store_that_sends_to_its_own_region_again_is_named(elsewhere: LyingStore) -> None:
    with lying_store("s3", DATA) as store:
        there = {"Location": elsewhere.url, "x-amz-bucket-region": "eu-west-1"}
        store.redirect = dict.fromkeys(("HEAD", "GET"), (307, there))
        with pytest.raises(GivenUpError, match=rf"redirect \(307\) to {host_of(elsewhere.url)}"):
            read_all("s3")
    assert elsewhere.asked == []


def test_a_redirect_to_what_is_not_a_url_and_to_another_path(store: LyingStore) -> None:
    for location, said in (("//[x/", "an address that is not a URL"), ("/login", "another path")):
        store.redirect = dict.fromkeys(("HEAD", "GET"), (302, {"Location": location}))
        with pytest.raises(GivenUpError, match=said):
            read_all(store.kind)


def test_a_chain_over_s3_is_not_redirected(elsewhere: LyingStore) -> None:
    with lying_store("s3", DATA) as store:
        store.redirect = {"GET": (307, {"Location": f"{elsewhere.url}/b/x.tar"})}
        with pytest.raises(TarkitError, match="redirect"):
            read_all("s3", "simplecache::")
        store.redirect = {}
        assert read_all("s3", "simplecache::") == DATA
    assert elsewhere.asked == []
