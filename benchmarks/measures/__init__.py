"""The measurements, one family in each file.

``ALL`` maps the name on the command line to its function.
"""

from __future__ import annotations

from collections.abc import Callable

from environments import Settings
from rounds import Result

from measures import (
    bombs,
    checking,
    converting,
    copying,
    creating,
    downloading,
    exchanging,
    feeding,
    feedremote,
    fetching,
    looking,
    manyshards,
    mapping,
    memory,
    publishing,
    ranges,
    reading,
    recordio,
    rendering,
    scaling,
    sequencefiles,
    serving,
    starting,
    streaming,
    tfrecords,
    writing,
)

ALL: dict[str, Callable[[Settings], Result]] = {
    "read-small": reading.read_small,
    "read-photos": reading.read_photos,
    "read-last": ranges.last_thousand,
    "check": checking.check_clean,
    "download": downloading.download,
    "fetch-urls": fetching.fetch_urls,
    "publish": publishing.publish,
    "feed-torch": feeding.feed_torch,
    "feed-decoded": feeding.feed_decoded,
    "feed-remote": feedremote.feed_remote,
    "feed-streaming": streaming.feed_streaming,
    "tfrecord-tensorflow": tfrecords.against_tensorflow,
    "tfrecord-pypi": tfrecords.against_pypi,
    "tfrecord-write": tfrecords.write_small,
    "sequencefile-spark": sequencefiles.against_spark,
    "write-small": writing.write_small,
    "create-small": creating.create_small,
    "create-parquet": creating.create_parquet,
    "recordio-read": recordio.read_small,
    "recordio-write": recordio.write_small,
    "recordio-4k": recordio.large,
    "tar-to-recordio": recordio.of_photos,
    "many-shards": manyshards.many_shards,
    "convert": converting.convert_photos,
    "convert-by-hand": converting.convert_by_hand,
    "cat-photos": copying.cat_photos,
    "split-photos": copying.split_photos,
    "shuffle-small": exchanging.shuffle_small,
    "shuffle-spark": exchanging.shuffle_spark,
    "shuffle-photos": exchanging.shuffle_photos,
    "sort-small": exchanging.sort_small,
    "join": exchanging.join,
    "exchange-scale": scaling.exchange_scale,
    "empty-command": mapping.empty_command,
    "map": mapping.map_photos,
    "contact-sheet": looking.contact_sheet,
    "memory": memory.memory,
    "memory-stalled": memory.memory_stalled,
    "memory-bomb": bombs.memory_bomb,
    "serve-pairs": serving.pairs,
    "serve-elasticdl": serving.elasticdl,
    "serve-answers": serving.answers,
    "serve-photos": serving.photos,
    "start-up": starting.start_up,
    "jobs-148": rendering.jobs_148,
    "indexed-million": rendering.indexed_million,
}
