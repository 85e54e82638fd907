"""Accelerate, Lightning and transformers' Trainer over the PyTorch data set: its loader, and
torchdata's.
"""

from __future__ import annotations

import importlib.util
import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from trainshards import program_of, torchrun, write_pictures, write_shards

from tarkit.errors import UsageError

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("torch", "accelerate", "lightning", "transformers")),
        reason="NO torch, accelerate, lightning OR transformers (tox run -e torch)",
    ),
    # Of their own.
    pytest.mark.filterwarnings("ignore"),
]
OPTIONS: dict[str, Any] = {"batch": 12, "seed": 1, "fields": "__key__ cls", "decode": "rgb"}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_shards(tmp_path_factory.mktemp("shards"), [40] * 3, lambda shard, number: {"cls": number % 2})


@pytest.fixture(scope="module")
def epochs(shards: str) -> list[list[list[str]]]:
    """Two epochs of one process: keys of global batches."""
    from tarkit.trainers.torch import ShardDataset

    loader = ShardDataset(shards, **OPTIONS).loader()
    return [[keys for keys, _ in loader] for _ in range(2)]


def test_accelerate_leaves_the_loader_as_it_is(shards: str, epochs: list[list[list[str]]], tmp_path: Path) -> None:
    done = torchrun("trainaccelerate.py", 2, shards, tmp_path)
    assert done.returncode == 0, done.stderr
    ranks = [json.loads((tmp_path / f"keys-{rank}").read_text()) for rank in range(2)]
    assert [sum(parts, []) for parts in zip(*ranks, strict=True)] == epochs[0]


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"num_workers": 1, "multiprocessing_context": "spawn"}])
def test_a_stateful_loader_that_accelerate_prepared_is_refused(shards: str, options: dict[str, Any]) -> None:
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration
    from torchdata.stateful_dataloader import StatefulDataLoader

    from tarkit.trainers.torch import ShardDataset

    accelerator = Accelerator(
        cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=True, use_stateful_dataloader=True)
    )
    for world in (2, 1):
        dataset = ShardDataset(shards, **{**OPTIONS, "fields": "cls"}, rank=0, world=world)
        if world == 1:
            prepared = accelerator.prepare(StatefulDataLoader(dataset, batch_size=None, **options))
            assert sum(len(labels) for (labels,) in prepared) == 120
        else:
            with pytest.raises(UsageError, match="would read the part of rank 0 only, and lose those of all other"):
                next(iter(accelerator.prepare(StatefulDataLoader(dataset, batch_size=None, **options))))


def test_lightning_keeps_the_state_of_the_loader(shards: str, epochs: list[list[list[str]]], tmp_path: Path) -> None:
    import lightning
    import torch
    from lightning.pytorch.callbacks import ModelCheckpoint

    from tarkit.trainers.torch import ShardDataset

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 2)
            self.seen: list[list[str]] = []

        def training_step(self, batch: Any, number: int) -> Any:
            names, labels = batch
            self.seen.append(names)
            return torch.nn.functional.cross_entropy(self.layer(labels[:, None].float()), labels)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.01)

    def fit(callbacks: list[Any], **options: Any) -> list[list[str]]:
        model = Model()
        quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
        limits = {"max_epochs": 2} | {name: options.pop(name) for name in ("max_steps",) if name in options}
        trainer = lightning.Trainer(
            accelerator="cpu", devices=1, default_root_dir=tmp_path, callbacks=callbacks, **quiet, **limits
        )
        trainer.fit(model, ShardDataset(shards, **OPTIONS).loader(2), **options)
        return model.seen

    save = ModelCheckpoint(dirpath=tmp_path, filename="last", every_n_train_steps=13)
    before = fit([save], max_steps=13)
    after = fit([], ckpt_path=str(tmp_path / "last.ckpt"), weights_only=False)
    assert before + after == sum(epochs, []) and len(before) == 13
    assert list(islice(after, 1)) == [epochs[1][3]]


@pytest.mark.parametrize("workers", [0, 2])
def test_accelerate_skips_batches_without_reading_them(
    shards: str, epochs: list[list[list[str]]], workers: int, tmp_path: Path
) -> None:
    from accelerate import skip_first_batches

    from tarkit.trainers.audit import audit_folder
    from tarkit.trainers.torch import ShardDataset

    loader = ShardDataset(shards, audit=tmp_path, **OPTIONS).loader(workers)
    rest = skip_first_batches(loader, 4)
    assert len(rest) == 6
    assert [keys for keys, _ in rest] == epochs[0][4:]
    assert (loader.state_dict()["epoch"], loader.state_dict()["next_batch"]) == (1, 0)
    (audited,) = audit_folder(str(tmp_path), [shards])
    assert (audited.used, audited.in_hand) == (6 * 12, 0)
    assert [keys for keys, _ in loader] == epochs[1], "then whole epochs"
    loader.set_epoch(0)
    running = iter(skip_first_batches(loader, 2))
    assert next(running)[0] == epochs[0][2]
    assert (loader.state_dict()["epoch"], loader.state_dict()["next_batch"]) == (0, 3)
    state = loader.state_dict()
    loader.load_state_dict(state)
    assert [keys for keys, _ in skip_first_batches(loader, 2)] == epochs[0][5:], "behind the place of a state"
    loader.set_epoch(0)
    assert not [*skip_first_batches(loader, 10)]
    assert loader.dataset[3][0] == epochs[1][3], "an epoch of which all was skipped is over"
    with pytest.raises(UsageError, match=r"^batches come in their order"):
        loader.dataset[5]


def test_a_service_has_no_batches_to_skip(shards: str) -> None:
    from accelerate import skip_first_batches

    from tarkit.trainers.torch import ShardDataset

    loader = ShardDataset(shards, batch=12, service="127.0.0.1:1").loader()
    with pytest.raises(UsageError, match=r"^the shard service keeps the state, and goes on where it is"):
        next(iter(skip_first_batches(loader, 2)))


@pytest.mark.parametrize(("workers", "steps", "accumulated"), [(0, 4, 1), (2, 13, 1), (2, 3, 2)])
def test_the_trainer_of_transformers_resumes_in_the_middle_of_an_epoch(
    shards: str, epochs: list[list[list[str]]], workers: int, steps: int, accumulated: int, tmp_path: Path
) -> None:
    import torch
    from transformers import Trainer, TrainingArguments

    from tarkit.trainers.torch import ShardDataset

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 2)
            self.seen: list[list[str]] = []

        def forward(self, names: list[str], labels: Any) -> dict[str, Any]:
            self.seen.append(names)
            return {"loss": torch.nn.functional.cross_entropy(self.layer(labels[:, None].float()), labels)}

    class ShardTrainer(Trainer):  # type: ignore[misc]
        def get_train_dataloader(self) -> Any:
            return ShardDataset(shards, collate=named, **OPTIONS).loader(workers)

    def train(most: int, resume: bool) -> list[list[str]]:
        arguments = TrainingArguments(
            str(tmp_path),
            num_train_epochs=2,
            max_steps=most,
            save_steps=steps,
            gradient_accumulation_steps=accumulated,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
        )
        trainer = ShardTrainer(Model(), arguments)
        assert trainer.num_examples(trainer.get_train_dataloader()) == 120
        trainer.train(resume_from_checkpoint=resume)
        return trainer.model.seen  # type: ignore[no-any-return]

    before = train(steps, False)
    assert len(before) == steps * accumulated
    assert before + train(-1, True) == epochs[0] + epochs[1]


def test_the_trainer_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    import transformers

    from tarkit.trainers.torch import ShardDataset

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(192, 2)

        def forward(self, names: Any, labels: Any) -> dict[str, Any]:
            found = self.layer(torch.stack(names).flatten(1))
            return {"loss": torch.nn.functional.cross_entropy(found, labels)}

    write_pictures(tmp_path, 32)
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {"transformers": transformers, "ShardDataset": ShardDataset, "arguments": named}
    exec(program_of("training.md", "trainer"), scope)
    arguments = transformers.TrainingArguments("out", num_train_epochs=2, use_cpu=True, report_to=[], disable_tqdm=True)
    done = scope["ShardTrainer"](Model(), arguments).train()
    assert done.global_step == 2 * 3


def named(rows: list[Any]) -> dict[str, Any]:
    import torch

    names, labels = zip(*rows, strict=True)
    return {"names": list(names), "labels": torch.tensor(labels)}
