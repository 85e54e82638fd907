"""The commands of ``kubetpl``, one in each file; ``cli/kubetpl.py`` loads them on request."""
