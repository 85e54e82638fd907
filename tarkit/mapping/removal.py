"""Remove the folders of commands, at once or in a thread.

A command may have mounted a file system in its folder: mounted files do not belong to the sample,
and are kept.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from queue import SimpleQueue

from tarkit.store.trees import open_folder, remove_if_empty, remove_tree

_MOST = 64


def remove_folder(folder: str) -> None:
    """Remove a folder, whatever a command did to it, or a file or a link in its place.

    Mount points, and the folders that contain them, are kept; nothing in them is touched.
    """
    try:
        if not remove_if_empty(folder):
            return
        # Not through a link that the command put in its place: what that points to is not ours.
        here = open_folder(folder)
        try:
            for name in os.listdir(here):
                os.unlink(name, dir_fd=here)
        finally:
            os.close(here)
        os.rmdir(folder)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        os.unlink(folder)
    except OSError:
        # A thousand folders in each other are left, too.
        with suppress(OSError, RecursionError):
            remove_tree(folder, as_far_as_possible=True)


class Remover:
    """A thread that removes folders, since a removal may wait for the disk's journal.

    A context manager.
    """

    def __init__(self) -> None:
        self._todo: SimpleQueue[str | None] = SimpleQueue()
        self._done: SimpleQueue[Exception | None] = SimpleQueue()
        self._under_way = 0
        # A pool of one thread costs more for each folder than the folder's own removal.
        self._thread = threading.Thread(target=self._run, name="remove", daemon=True)
        self._thread.start()

    def __enter__(self) -> Remover:
        return self

    def __exit__(self, *_: object) -> None:
        self._todo.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (folder := self._todo.get()) is not None:
            try:
                remove_folder(folder)
                self._done.put(None)
            except Exception as error:
                self._done.put(error)

    def add(self, folder: str) -> None:
        """Schedule the removal of a folder.

        Waits if too many others are scheduled.
        """
        self._todo.put(folder)
        self._under_way += 1
        while self._under_way > _MOST:
            self.wait_for_one()

    def wait_for_one(self) -> bool:
        """Wait until one more folder is removed; False if none is being removed."""
        if not self._under_way:
            return False
        self._under_way -= 1
        if (error := self._done.get()) is not None:
            raise error
        return True
