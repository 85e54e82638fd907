"""Read an epoch under accelerate as one of several ranks: trainaccelerate.py SHARDS FOLDER, by
torchrun.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from accelerate import Accelerator

from tarkit.trainers.torch import ShardDataset


def main(shards: str, folder: Path) -> None:
    """One rank."""
    accelerator = Accelerator(cpu=True)
    dataset = ShardDataset(shards, batch=12, seed=1, fields="__key__ cls", decode="rgb")
    model = torch.nn.Linear(1, 2)
    # Only what accelerate knows is changed: the loader comes back as it is.
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), 0.01), dataset.loader(num_workers=2)
    )
    read = []
    for names, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(labels[:, None].float()), labels)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        read.append(names)
    (folder / f"keys-{accelerator.process_index}").write_text(json.dumps(read))
    accelerator.end_training()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
