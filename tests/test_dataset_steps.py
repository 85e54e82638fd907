"""The steps of a WebDataset, beside those of webdataset 1.0.2 on the same shards."""

from __future__ import annotations

import importlib.util
import io
import logging
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import PIL.Image
import pytest

from tarkit.errors import DataError, DecodeError, DuplicateFieldError, MissingExtraError, UsageError
from tarkit.samples import decoders, handlers
from tarkit.samples.dataset import WebDataset
from tarkit.samples.tarwriter import TarWriter

both = pytest.mark.skipif(
    importlib.util.find_spec("webdataset") is None, reason="webdataset is not installed (pip install webdataset)"
)
COUNT = 7


def png(number: int) -> bytes:
    stream = io.BytesIO()
    PIL.Image.new("RGB", (4, 3), (number * 20, 100, 50)).save(stream, "png")
    return stream.getvalue()


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Seven samples in two shards."""
    folder = tmp_path_factory.mktemp("shards")
    for shard, numbers in enumerate((range(4), range(4, COUNT))):
        with TarWriter(str(folder / f"s-{shard}.tar")) as writer:
            for number in numbers:
                fields = {"cls": b"%d" % number, "seg.png": png(number), "txt": b"text %d" % number}
                writer.write({"__key__": f"k{number}", **fields})
    return f"{folder}/s-{{0..1}}.tar"


def plain(value: Any) -> Any:
    """With types, and without arrays and what only one of the two readers adds."""
    if isinstance(value, dict):
        hidden = ("__url__", "__local_path__", "__worker__", "__rank__")
        return {name: plain(each) for name, each in value.items() if name not in hidden}
    if isinstance(value, (list, tuple)):
        return type(value)(plain(each) for each in value)
    if isinstance(value, (np.ndarray, np.generic)):
        return (type(value).__name__, str(value.dtype), value.tolist())
    return value


def upper(value: str) -> str:
    return value.upper()


def odd(number: int) -> int:
    if number % 2 == 0:
        raise ValueError(f"{number} is even")
    return number


def pairs(source: Any) -> Any:
    return (sample for sample in source for _ in range(2))


def tuples(dataset: Any) -> Any:
    return dataset.decode("rgb8").to_tuple("cls", "txt", "seg.png")


def by_extension(library: Any, dataset: Any) -> Any:
    return dataset.decode(
        library.handle_extension("seg.png", len), library.handle_extension("cls", int), only=["cls", "seg.png"]
    )


def webdataset_stages(_: Any, dataset: Any) -> Any:
    import webdataset

    stages = webdataset.map(lambda row: row * 2), webdataset.detshuffle(3), webdataset.batched(2), webdataset.Cached()
    return sorted(each[0][0] for each in dataset.to_tuple("cls").compose(*stages))


def in_a_with_statement(_: Any, dataset: Any) -> list[Any]:
    with dataset.to_tuple("cls") as opened:
        return list(opened)


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "batched": lambda _, d: tuples(d).batched(3),
    "batched whole": lambda _, d: tuples(d).batched(3, partial=False),
    "batched of 20": lambda _, d: tuples(d).batched(20),
    "batched lists": lambda _, d: tuples(d).batched(3, collation_fn=None),
    "batched dicts": lambda _, d: (
        d.decode("l").map(lambda s: {n: s[n] for n in ("__key__", "cls", "seg.png")}).batched(2)
    ),
    "unbatched": lambda _, d: tuples(d).batched(3).unbatched(),
    "unbatched dicts": lambda _, d: d.decode().map(lambda s: {"cls": s["cls"], "txt": s["txt"]}).batched(2).unbatched(),
    "listed": lambda _, d: tuples(d).listed(3),
    "unlisted": lambda _, d: tuples(d).listed(3).unlisted(),
    "map_tuple": lambda _, d: tuples(d).map_tuple(None, upper),
    "map_tuple with a handler": lambda w, d: tuples(d).map_tuple(odd, handler=w.ignore_and_continue),
    "rename": lambda _, d: d.rename(image="jpg;seg.png", label="cls"),
    "rename of a list": lambda _, d: d.rename(image=["jpg", "seg.png"]),
    "rename without keep": lambda _, d: d.rename(keep=False, image="jpg;seg.png", name="__key__"[:0] + "txt"),
    "rename_keys": lambda _, d: d.rename_keys(image="*.png"),
    "rename_keys, the last counts": lambda _, d: d.rename_keys(("a", "*"), ("b", "*.png"), duplicate_is_error=False),
    "rename_keys, keep": lambda _, d: d.rename_keys(("image", "*.jpg"), keep_unselected=True, must_match=False),
    "compose": lambda _, d: d.compose(pairs, pairs).to_tuple("cls"),
    "with_epoch": lambda _, d: d.to_tuple("cls").with_epoch(10),
    "with_epoch of fewer": lambda _, d: d.to_tuple("cls").with_epoch(5).batched(2),
    "with_epoch of batches": lambda _, d: d.to_tuple("cls").batched(2).with_epoch(nbatches=5),
    "repeat": lambda _, d: d.to_tuple("cls").repeat(2),
    "repeat to a number": lambda _, d: d.to_tuple("cls").repeat(nbatches=10),
    "rsample of all": lambda _, d: d.rsample(1.0).to_tuple("cls"),
    "rsample of none": lambda _, d: d.rsample(0.0).to_tuple("cls"),
    "with_length": lambda _, d: [len(d.with_length(70, silent=True))],
    "a decoder": lambda _, d: d.decode(lambda key, data: (key, data) if key == ".txt" else None),
    "handle_extension": by_extension,
    "map with a handler": lambda w, d: d.decode().map(lambda s: odd(s["cls"]), handler=w.ignore_and_continue),
    "map that stops": lambda w, d: d.decode().map(lambda s: 1 // (s["cls"] - 3), handler=w.ignore_and_stop),
    "map_dict with a handler": lambda w, d: d.decode().map_dict(cls=odd, handler=w.ignore_and_continue),
    "to_tuple with a handler": lambda w, d: d.to_tuple("jpg", handler=w.ignore_and_continue),
    "to_tuple of what is missing": lambda _, d: d.to_tuple("jpg", "txt", missing_is_error=False),
    "a picture by any of its names": lambda _, d: d.decode("l8", only=["seg.png", "seg.jpg"]),
    "decode, pre": lambda _, d: d.decode("rgb8", pre=[lambda key, data: len(data) if key == ".seg.png" else None]),
    "decode, Continue": lambda w, d: d.decode(
        lambda key, data: w.Continue(".json", b"[%s]" % data) if key == ".cls" else None
    ),
    "decode, post": lambda _, d: d.decode("l8", post=[lambda key, data: (key, data)]),
    "decode, partial": lambda _, d: d.decode(only="cls").decode(only="txt", partial=True),
    "xdecode": lambda _, d: d.xdecode(("*.png", lambda stream: len(stream.read())), cls=False),
    "xdecode of some": lambda _, d: d.xdecode(must_decode=False, defaults=[("*.txt", lambda stream: stream.read(4))]),
    "extract_keys": lambda _, d: d.extract_keys("*.jpg;*.png", ["cls"], "*.txt"),
    "extract_keys, ignore": lambda _, d: d.extract_keys("*.jpg", "*s*", duplicate_is_error=False, ignore_missing=True),
    "mcached": lambda _, d: [each for cached in [d.to_tuple("cls").mcached()] for _ in range(2) for each in cached],
    "map, by position": lambda w, d: d.decode().map(lambda s: odd(s["cls"]), w.ignore_and_continue),
    "the first ones of a shuffle": lambda _, d: sorted(d.to_tuple("cls").shuffle(5, initial=2)),
    "shuffle by a generator": lambda _, d: sorted(d.to_tuple("cls").shuffle(5, rng=Random(1))),
    "a stage of webdataset": webdataset_stages,
    "with": in_a_with_statement,
}


@both
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_values_as_webdataset(shards: str, name: str) -> None:
    import webdataset

    ours = SimpleNamespace(**(vars(handlers) | vars(decoders)))
    theirs = SimpleNamespace(**vars(webdataset))
    program = PROGRAMS[name]
    found = [plain(item) for item in program(ours, WebDataset(shards))]
    assert found == [plain(item) for item in program(theirs, webdataset.WebDataset(shards, shardshuffle=False))]
    assert found or "none" in name or "to_tuple with" in name


@both
def test_every_method_and_argument_of_webdataset_is_there_or_says_what_to_use() -> None:
    import inspect

    import webdataset

    theirs, ours = webdataset.WebDataset, WebDataset("x.tar")
    internal = {"create_url_iterator", "update_cache_info", "run"}
    for name in set(dir(theirs)) - internal - set(dir(object)):
        if name.startswith("__") or not callable(getattr(theirs, name)):
            continue
        if not hasattr(ours, name):
            with pytest.raises(AttributeError, match=f"^WebDataset has no '{name}': .*(compose|methods|iterate|write)"):
                getattr(ours, name)
            continue
        wanted = inspect.signature(getattr(theirs, name)).parameters.values()
        has = inspect.signature(getattr(ours, name)).parameters
        assert {each.name for each in wanted if each.kind == each.POSITIONAL_OR_KEYWORD} <= has.keys() | {"self"}, name
    found = inspect.signature(WebDataset).parameters
    for each in inspect.signature(theirs).parameters:
        if each not in found:
            with pytest.raises(UsageError, match=rf"WebDataset\({each}='yes'\) is not taken: "):
                WebDataset("x.tar", **{each: "yes"})
    # What filters of webdataset take that its methods hand on.
    handed_on = {
        "rename": "rename", "select": "select", "to_tuple": "to_tuple", "extract_keys": "extract_keys",
        "rename_keys": "rename_keys", "xdecode": "xdecode", "shuffle": "shuffle",
    }  # fmt: skip
    for method, step in handed_on.items():
        wanted = inspect.signature(getattr(webdataset.filters, f"_{step}")).parameters.values()
        has = inspect.signature(getattr(ours, method)).parameters
        named = {each.name for each in wanted if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD)}
        assert named - {"data", "source", "bufsize"} <= has.keys() | {"handler"}, method


def test_a_state_goes_on_in_the_middle_of_an_epoch(shards: str, caplog: pytest.LogCaptureFixture) -> None:
    """With a fresh seed, which is in the state."""
    import json

    whole = WebDataset(shards, shardshuffle=100).to_tuple("__key__").shuffle(4)
    assert whole.seed is not None and f"seed={whole.seed} gives" in caplog.text
    assert whole.state_dict()["items"] == 0
    epochs = [list(whole) for _ in range(3)]
    assert len({str(epoch) for epoch in epochs}) == 3
    for taken in (0, 3, COUNT):
        whole.set_epoch(1)
        running = iter(whole)
        before = [next(running) for _ in range(taken)]
        state = json.loads(json.dumps(whole.state_dict()))
        assert len(json.dumps(state)) < 200
        same = WebDataset(shards, shardshuffle=100).to_tuple("__key__").shuffle(4)
        same.load_state_dict(state)
        assert same.state_dict() == state == dict(state, seed=whole.seed, epoch=1, items=taken)
        again = iter(same)
        assert same.state_dict() == state, "before the first item"
        assert before + list(again) == epochs[1]
        assert list(same) == epochs[2]
    with pytest.raises(UsageError, match=r"another WebDataset: seed is 5, and it has \d+\. .*ShardDataset"):
        WebDataset(shards, shardshuffle=100, seed=5).load_state_dict(state)
    with pytest.raises(UsageError, match="another WebDataset: shards is"):
        WebDataset("x.tar").load_state_dict(state)
    with pytest.raises(UsageError, match=r"another WebDataset: rank is \[0, 1\], and it has \[0, 2\]"):
        WebDataset(shards).load_state_dict({**state, "rank": [0, 2]})


def test_a_collation_that_raises_what_ends_an_iterator(shards: str) -> None:
    """The samples do not end there, without a word."""
    with pytest.raises(RuntimeError, match="^generator raised StopIteration$"):
        list(WebDataset(shards).batched(2, collation_fn=lambda batch: next(iter(()))))


def test_a_state_of_other_items_is_refused(shards: str) -> None:
    """So many items of another size would be passed over, without a word."""
    whole = WebDataset(shards).batched(2)
    next(iter(whole))
    state = whole.state_dict()
    for other in (
        WebDataset(shards),
        WebDataset(shards).batched(3),
        WebDataset(shards, resampled=True).batched(2),
        whole.take(1),
        whole.slice(1, None),
        whole.shuffle(5, seed=1),
        whole.repeat(2),
    ):
        with pytest.raises(UsageError, match=r"another WebDataset: (steps|seed) is '?.*, and it has"):
            other.load_state_dict(state)
    same = WebDataset(shards).map(dict).batched(2)
    same.load_state_dict(state)
    assert len(list(same)) == len(list(whole)) - 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"items": -1}, "items of the state is -1; it must be a whole number"),
        ({"items": None}, "items of the state is None"),
        ({"epoch": 10**30}, "epoch of the state is 1000"),
        ({"epoch": "x"}, "epoch of the state is 'x'"),
        ({"seed": "x"}, "seed of the state is 'x'"),
    ],
)
def test_a_state_that_cannot_be(shards: str, change: dict[str, Any], message: str) -> None:
    whole = WebDataset(shards)
    with pytest.raises(UsageError, match=f"^{message}"):
        whole.load_state_dict({**whole.state_dict(), **change})
    with pytest.raises(UsageError, match="^this is not the state of a WebDataset, but a list$"):
        whole.load_state_dict([])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="^epoch is -1; it must be"):
        whole.set_epoch(-1)


def test_a_state_behind_the_end_of_its_epoch(shards: str) -> None:
    whole = WebDataset(shards)
    whole.load_state_dict({**whole.state_dict(), "items": COUNT + 1})
    with pytest.raises(
        DataError, match=f"the state says that {COUNT + 1} items of this epoch were used, and it has {COUNT}"
    ):
        next(iter(whole))


@both
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_files_are_selected_and_renamed(shards: str) -> None:
    """By the functions that webdataset takes, and with its result."""
    import webdataset

    functions = {
        "select_files": lambda name: not name.endswith("txt"),
        "rename_files": lambda name: name.replace("cls", "id"),
    }
    found = [plain(sample) for sample in WebDataset(shards, **functions).decode("l8")]
    theirs = webdataset.WebDataset(shards, shardshuffle=False, **functions).decode("l8")
    assert found == [plain(sample) for sample in theirs]
    assert found[0].keys() == {"__key__", "id", "seg.png"}


def test_the_first_samples_of_a_shuffle_come_early(shards: str) -> None:
    read: list[int] = []
    first = next(iter(numbers(shards).map(lambda n: read.append(n) or n).shuffle(6, initial=2, seed=1)))
    assert first in (0, 1) and read == [0, 1, 2]


def numbers(shards: str) -> WebDataset:
    return WebDataset(shards).decode(only="cls").to_tuple("cls").map(lambda item: item[0])


def test_lists_without_the_last_one(shards: str) -> None:
    """webdataset gives it in spite of partial=False."""
    assert list(numbers(shards).listed(3, partial=False)) == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda d: d.batched(0), UsageError, "a batch has 0 samples"),
        (lambda d: d.rsample(2), UsageError, "the share is 2"),
        (lambda d: d.decode("rgb16"), UsageError, "decoded to 'rgb16'"),
        (lambda d: d.map(lambda s: {s["txt"]: 1}).batched(2), DataError, "samples have different fields"),
        (lambda d: d.map(lambda s: (1,) * len(s["txt"][5:])).map(lambda t: t or 1).batched(9), None, ""),
        (
            lambda d: d.map(lambda s: (np.zeros(int(s["cls"])),)).batched(2),
            DataError,
            "values of 0 do not make one array",
        ),
        (lambda d: d.map(lambda s: ("ab", "abc")).unbatched(), DataError, r"different lengths: \[2, 3\]"),
        (lambda d: d.map(lambda s: 1).unbatched(), DataError, "a batch is int"),
        (lambda d: d.to_tuple("cls").map_tuple(int, int), DataError, "2 functions, and the sample has 1 values"),
        (
            lambda d: d.rename_keys(a="*.jpg"),
            DataError,
            r"no field matches '\*.jpg'; the sample has .* cls, seg.png, txt",
        ),
        (lambda d: d.rename_keys(a="cls", b="x*", must_match=False).rename_keys(c="a*"), None, ""),
        (lambda d: d.rename_keys(a="???"), DuplicateFieldError, "'txt' cannot be 'a'"),
        (lambda d: d.rename_keys(txt="cls", keep_unselected=True), DuplicateFieldError, "'txt' cannot be 'txt'"),
        (lambda d: d.select(lambda s: False).with_epoch(3), DataError, "one has no samples"),
        (lambda d: d.extract_keys(), UsageError, "no patterns"),
        (lambda d: d.extract_keys("*.jpg"), DataError, r"no field matches '\*.jpg'; it has cls, seg.png, txt"),
        (lambda d: d.extract_keys("*t", "?[lx]*"), DuplicateFieldError, r"'\?\[lx\]\*' matches several .*: cls, txt"),
        (lambda d: d.xdecode("*.jpg"), UsageError, "must be .pattern, function"),
        (lambda d: d.xdecode(), DecodeError, "no pattern matches the field 'cls'; must_decode=False"),
        (lambda d: d.xdecode(cls=lambda stream: 1 // 0), DecodeError, "field 'cls' cannot be decoded: .*division"),
        (lambda d: d.decode(pre=["rgb"]), UsageError, "decode: pre has 'rgb'"),
        (lambda d: d.to_tuple("jpg", missing_is_error=False, none_is_error=True), DataError, "field 'jpg' is None"),
        (lambda d: d.map_dict(jpg=len), KeyError, "^[^'\"]*key 'k0': map_fields: the sample has no field 'jpg'"),
        (lambda d: d.shuffle(3, initial=0), UsageError, "initial is 0"),
        (
            lambda d: d.decode(lambda key, data: 1 // 0),
            DecodeError,
            "key 'k0': field 'cls' cannot be decoded: .*division",
        ),
    ],
)
def test_what_is_wrong_is_an_error(shards: str, make: Any, error: type[Exception] | None, words: str) -> None:
    if error is None:
        assert len(list(make(WebDataset(shards)))) in (1, COUNT)
        return
    with pytest.raises(error, match=words):
        list(make(WebDataset(shards)))


def test_an_unknown_length_is_a_type_error_that_says_what_to_do(shards: str) -> None:
    """Which list() and len() of a DataLoader take for an unknown length."""
    with pytest.raises(TypeError, match=r"with_length.*import torch before.*ShardDataset"):
        len(WebDataset(shards))
    assert WebDataset(shards)
    assert len(list(WebDataset(shards))) == COUNT


def test_random_steps_follow_from_the_seed(shards: str) -> None:
    dataset = numbers(shards).rsample(0.5, seed=1)
    epochs = [tuple(dataset) for _ in range(8)]
    assert len(set(epochs)) > 4
    assert 0 < sum(map(len, epochs)) < 8 * COUNT
    dataset.set_epoch(0)
    assert [tuple(dataset) for _ in range(8)] == epochs


def test_resampled_shards_come_without_end(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    found = []
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        dataset = WebDataset(shards, resampled=True, seed=4).to_tuple("__key__").with_epoch(200)
        found += [list(dataset), list(dataset)]
        assert all(
            len(epoch) == 200 and {key for (key,) in epoch} == {f"k{n}" for n in range(COUNT)} for epoch in found
        )
    assert len({tuple(epoch) for epoch in found}) == 4
    dataset.set_epoch(0)
    assert list(dataset) == found[2]


def test_passes_have_orders_of_their_own(shards: str) -> None:
    found = list(numbers(shards).shuffle(9, seed=1).repeat(2))
    assert sorted(found[:COUNT]) == sorted(found[COUNT:]) == list(range(COUNT))
    assert found[:COUNT] != found[COUNT:]


def test_keys_are_logged(shards: str, tmp_path: Path) -> None:
    dataset = WebDataset(shards).log_keys(tmp_path / "keys")
    assert dataset.log_keys() is dataset
    list(dataset.take(2))
    list(dataset.take(1))
    assert (tmp_path / "keys").read_text() == "0\tNone\t0\tk0\n1\tNone\t0\tk1\n0\tNone\t0\tk0\n"


def test_what_handlers_pass_over_is_counted_and_logged(shards: str, caplog: pytest.LogCaptureFixture) -> None:
    dataset = numbers(shards).map(odd, handler=handlers.warn_and_continue)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert list(dataset) == [1, 3, 5]
    assert [str(each.message) for each in warned] == [f"ValueError: {number} is even" for number in (0, 2, 4, 6)]
    assert dataset.handled == {"ValueError": 4}
    assert caplog.record_tuples == [
        ("tarkit.samples.pipeline", logging.WARNING, "handlers have passed over errors: {'ValueError': 4}")
    ]
    with pytest.raises(ValueError, match="0 is even"):
        list(numbers(shards).map(odd, handler=handlers.reraise_exception))
    with pytest.warns(UserWarning, match="ValueError: 0 is even"):
        assert list(numbers(shards).map(odd, handler=handlers.warn_and_stop)) == []


def test_a_handler_is_not_given_what_is_wrong_with_the_program(shards: str) -> None:
    def missing(sample: object) -> None:
        raise MissingExtraError("a test", "torch")

    with pytest.raises(MissingExtraError):
        list(WebDataset(shards).map(missing, handler=handlers.ignore_and_continue))


def test_a_shard_that_fails_goes_to_the_handler(shards: str, tmp_path: Path) -> None:
    """And no torn sample comes out."""
    whole = Path(shards.replace("{0..1}", "0")).read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[: 512 * 9])
    urls = [str(tmp_path / "cut.tar"), str(tmp_path / "none.tar"), shards.replace("{0..1}", "1")]
    dataset = WebDataset(urls, handler=handlers.ignore_and_continue)
    samples = list(dataset)
    assert [sample["__key__"] for sample in samples] == ["k0", "k4", "k5", "k6"]
    assert all({"cls", "seg.png", "txt"} < sample.keys() for sample in samples)
    assert dataset.handled == {"TruncatedError": 1, "MissingInputError": 1}
    assert [sample["__key__"] for sample in WebDataset(urls, handler=handlers.ignore_and_stop)] == ["k0"]


def test_a_decoder_is_given_what_is_compressed_without_gz(tmp_path: Path) -> None:
    import gzip

    with TarWriter(str(tmp_path / "s.tar")) as writer:
        writer.write({"__key__": "a", "x.GZ": gzip.compress(b"one")})
    dataset = WebDataset(tmp_path / "s.tar")
    assert [each["x.GZ"] for each in dataset.decode(lambda *given: given)] == [(".x", b"one")]
    packed = gzip.compress(b"one")
    assert [each["x.GZ"] for each in dataset.decode(lambda *given: given, pre=[])] == [(".x.GZ", packed)]
    assert [each["x.GZ"] for each in dataset.decode("rgb", pre=[])] == [packed]
    unpacked = lambda key, data: decoders.Continue(key[:-3], gzip.decompress(data))  # noqa: E731
    assert [each["x.GZ"] for each in dataset.decode("rgb", lambda *given: given, pre=[unpacked])] == [(".x", b"one")]


def test_words_of_torch_make_tensors(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", SimpleNamespace(from_numpy=lambda array: ("tensor", array)))
    array = next(iter(WebDataset(shards).decode("rgb")))["seg.png"]
    for word in ("torch", "torchrgb"):
        kind, found = next(iter(WebDataset(shards).decode(word)))["seg.png"]
        assert (kind, found.shape, found.tolist()) == ("tensor", (3, 3, 4), array.transpose(2, 0, 1).tolist())
    kind, grey = next(iter(WebDataset(shards).decode("torchl8")))["seg.png"]
    assert (kind, grey.shape, str(grey.dtype)) == ("tensor", (3, 4), "uint8")


def test_a_partial_function_can_be_a_step(shards: str) -> None:
    assert list(numbers(shards).map(partial(pow, 2)).take(3)) == [1, 2, 4]


def test_pickles_are_decoded_only_by_a_function_of_the_user(tmp_path: Path) -> None:
    import pickle

    with TarWriter(str(tmp_path / "s.tar")) as writer:
        writer.write({"__key__": "a", "pyd": pickle.dumps([1, 2])})
    dataset = WebDataset(tmp_path / "s.tar")
    with pytest.raises(DecodeError, match="reading a pickle can run any code; use json, msgpack, npy or npz"):
        list(dataset.decode())
    with pytest.raises(DecodeError, match="reading a pickle can run any code; use json, msgpack, npy or npz"):
        list(dataset.xdecode())
    assert [each["pyd"] for each in dataset.decode(decoders.handle_extension("pyd", pickle.loads))] == [[1, 2]]
