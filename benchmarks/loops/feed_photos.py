"""Take decoded photos from a DataLoader of two workers, in batches of 64: feed_photos.py SIDE
SHARDS TIMES.

The epoch has all shards some times, so that the photos take longer than the start of the workers.
"""

import json
import sys
import time
import warnings
import zlib

import torch

warnings.simplefilter("ignore")
side, shards, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
BATCH, WORKERS, CROP = 64, 2, 224


def cropped(sample):
    """The middle of a picture, what it shows, and a number for its key."""
    image, label, key = sample
    top, left = (image.shape[0] - CROP) // 2, (image.shape[1] - CROP) // 2
    return image[top : top + CROP, left : left + CROP], label, zlib.crc32(key.encode())


def loader():
    if side == "webdataset":
        import braceexpand  # noqa: F401 (webdataset needs it)
        import webdataset

        data = (
            webdataset.WebDataset("::".join([shards] * times), shardshuffle=False)
            .decode("rgb8")
            .to_tuple("jpg", "cls", "__key__")
        )
        return webdataset.WebLoader(data.map(cropped).batched(BATCH), batch_size=None, num_workers=WORKERS)
    from tarkit.trainers.torch import ShardDataset

    dataset = ShardDataset(
        [shards] * times, batch=BATCH, fields="jpg cls __key__", decode="rgb8", transform=cropped, shuffle=False
    )
    return dataset.loader(WORKERS)


count = total = checksum = 0
begin = time.perf_counter()
for images, labels, keys in loader():
    count += len(images)
    # Eight pixel values at a time: the sum of single ones takes a third of the time of all.
    total += int(images.view(-1).view(torch.int64).sum()) + int(labels.sum())
    checksum += int(keys.sum())
seconds = time.perf_counter() - begin
json.dump({"seconds": seconds, "evidence": {"samples": count, "pixels": total % 2**64, "keys": checksum}}, sys.stdout)
