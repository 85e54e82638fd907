"""A mapper with a setup, called with two samples at once."""


def suffix():
    return b"!"


def exclaim(samples, end):
    return [{**sample, "txt": sample["txt"] + end} for sample in samples]
