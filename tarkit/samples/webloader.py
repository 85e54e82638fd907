"""WebLoader: a torch DataLoader whose batches go through steps, as users of webdataset write it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tarkit.errors import UsageError, library
from tarkit.samples.steps import Steps

_NO_STATE = (
    "a WebLoader has no state, as its workers read ahead: tarkit.trainers.torch.ShardDataset(...).loader() has one, "
    "and torchdata's StatefulDataLoader keeps that of a WebDataset"
)


class WebLoader(Steps):
    """A DataLoader with the methods of a WebDataset, which mix what comes of its workers.

    >>> loader = WebLoader(dataset.batched(16), batch_size=None, num_workers=4)  # doctest: +SKIP
    >>> for images, labels in loader.unbatched().shuffle(1000).batched(64):  # doctest: +SKIP
    ...     step(images, labels)

    Args:
        dataset: what the DataLoader reads.
        options: other arguments of the DataLoader.

    Raises:
        MissingExtraError: PyTorch is not installed.
    """

    def __init__(self, dataset: Any, *given: Any, **options: Any) -> None:
        data = library("torch.utils.data", "a WebLoader", "torch")
        super().__init__(getattr(dataset, "seed", None))
        self.loader = data.DataLoader(dataset, *given, **options)

    def set_epoch(self, epoch: int) -> None:
        """The number of the epoch that the next iteration is, in the data set, too, if it counts them."""
        super().set_epoch(epoch)
        if hasattr(self.loader.dataset, "set_epoch"):
            self.loader.dataset.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Raises: UsageError: there is none."""
        raise UsageError(_NO_STATE)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises: UsageError: there is none."""
        raise UsageError(_NO_STATE)

    def _reader(self) -> tuple[int, int]:
        return self._rank().rank, 0

    def _read(self, place: tuple[int, ...]) -> Iterator[Any]:
        return iter(self.loader)
