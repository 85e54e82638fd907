"""The commands of ``kubetpl``, a file each; ``cli/kubetpl.py`` loads the one that is asked for."""
