"""Accelerate and Lightning over the PyTorch data set: its loader, and torchdata's."""

from __future__ import annotations

import importlib.util
import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from trainshards import torchrun, write_shards

from tarkit.errors import UsageError

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("torch", "accelerate", "lightning")),
        reason="NO torch, accelerate OR lightning (tox run -e torch)",
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
