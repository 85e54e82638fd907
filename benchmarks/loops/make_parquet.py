"""Make a Parquet file: rows of 2,000 random bytes, a class, a caption, in groups of 10,000."""

import random
import sys

import pyarrow
import pyarrow.parquet

path, count = sys.argv[1], int(sys.argv[2])
chance = random.Random(20261126)
writer = None
for begin in range(0, count, 10_000):
    numbers = range(begin, min(begin + 10_000, count))
    table = pyarrow.table(
        {
            "id": [f"{number:08d}" for number in numbers],
            "jpg": [chance.randbytes(2000) for _ in numbers],
            "cls": [number % 1000 for number in numbers],
            "caption": [f"a caption of picture {number}" for number in numbers],
        }
    )
    writer = writer or pyarrow.parquet.ParquetWriter(path, table.schema, use_dictionary=False)
    writer.write_table(table)
if writer is not None:
    writer.close()
