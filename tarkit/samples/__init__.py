"""Records to samples and back: the key rule, codecs, transforms, readers and writers of shards."""
