"""Samples for trainers: each once an epoch, over any number of processes, resumable at any batch.

A batch passes through: ``world`` (the rank of this process), ``order`` (the samples of the batch),
``fetchplan`` and ``ahead`` (their remote parts, fetched before), ``shardmap`` (their bytes),
``batchmaker`` (decoded and collated), ``source`` (all of these), ``delivery`` and ``grouped`` (from
a worker to the loop), ``loader`` (epoch after epoch). ``options`` has the arguments of a source.
Below ``shardmap``, ``shardlist`` lists the shards and ``openshards`` opens them. ``choice`` chooses
samples from the indexes, and ``subset`` holds their numbers; ``skipped`` lists samples that failed.
Of several data sets, ``streams`` has the amounts, ``shares`` the numbers of a batch, ``mixedorder``
the order, ``mixture`` the state; ``weighting`` is for weights of samples. ``checkedstate`` finds
states that were changed. ``stageclock`` measures the worker's part of this way, ``loopnumbers`` the
loop's, and ``feedtest`` both without a model. Code that needs a trainer's library is in a module
named after that library; ``torchprocess`` prepares and checks the processes that read for PyTorch,
and ``arrays`` needs NumPy only.
"""
