"""Whether the locks that SQLite took for this process are still there, and whether it is the only SQLite in it.

SQLite uses POSIX record locks, which belong to a process as a whole. The process loses all its locks on a file when
*any* descriptor of that file is closed in it: by a second copy of SQLite, by a daemon that closes what it inherited, by
code that reads the file. Nothing tells. Two processes may then be granted the same numbers.

SQLite takes two locks when it opens a store, and keeps them until it closes it: one on the file, one on the index of
its log (``-shm``). Linux shows in ``/proc/self/fdinfo`` by which descriptor a lock was taken. As long as both are shown
at the descriptors that took them, nothing was closed since. A second copy of SQLite that is still open has a descriptor
of the index of its own, so there is more than one. Both are looked at after each grant, before it is believed.

Where the system does not show that, the descriptors alone are compared.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Final, Mapping, NamedTuple, Optional, Sequence

from .store import StoreError

IN_USE_LOCKS: Final = ((0, 0x4000_0002, 510), (2, 128, 1))
"""Which of the three files, from which byte on, how many: <https://www.sqlite.org/walformat.html>, section 2.3."""

_FOLDERS: Final = ("/proc/thread-self/fd", "/proc/self/fd", "/dev/fd")
_NAME_MAX_BYTES: Final = 150
"""So much of a file's name is told by a mark, from its end, as in the Rust library."""


class File(NamedTuple):
    """What tells a file from any other, whatever its name."""

    device: int
    inode: int


class Descriptors(NamedTuple):
    """The descriptors of a store's files at one instant, by their numbers."""

    of: Mapping[int, File]

    def changed(self) -> Optional[File]:
        """A file whose descriptor was closed, or is another file now."""
        return next((file for number, file in self.of.items() if file_of(number) != file), None)


def file_of(number: int) -> Optional[File]:
    """What a descriptor of this process is; none if it is closed."""
    try:
        found = os.fstat(number)
    except OSError:
        return None
    return File(found.st_dev, found.st_ino)


def descriptors(files: Sequence[File]) -> Optional[Descriptors]:
    """Those of these files; none where the system does not list them. No file is opened for it."""
    for folder in _FOLDERS if os.name == "posix" else ():
        try:
            names = os.listdir(folder)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                raise _unseen("descriptors", error) from error
            continue
        found = ((int(name), file_of(int(name))) for name in names if name.isdecimal())
        return Descriptors({number: file for number, file in found if file is not None and file in files})
    return None


def _unseen(what: str, error: OSError) -> StoreError:
    return StoreError("unavailable", f"the {what} of this process cannot be looked at, so nothing is granted ({error})")


def _told(number: int) -> bytes:
    """What the system tells of a descriptor."""
    try:
        info = os.open(f"/proc/thread-self/fdinfo/{number}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Some 80 bytes a lock: SQLite takes five at most on a file.
            return os.read(info, 65_536)
        finally:
            os.close(info)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise _unseen("locks", error) from error
        return b""


def _locks_at(number: int) -> Sequence[tuple[int, int]]:
    """The first and the last byte of each POSIX lock that this process took by a descriptor, and still has."""
    lines = (line.split() for line in _told(number).splitlines() if line.startswith(b"lock:"))
    # lock:  1: POSIX  ADVISORY  READ 6875 fe:00:10010755 128 128
    return [
        (int(line[7]), sys.maxsize if line[8] == b"EOF" else int(line[8]))
        for line in lines
        if len(line) > 8 and line[2] == b"POSIX"
    ]


def _has_lock(number: int, start: int, length: int) -> bool:
    return any(first <= start and last >= start + length - 1 for first, last in _locks_at(number))


class Watch:
    """The locks of one store as they were when it was opened.

    :param known: The descriptors of the index that this copy of SQLite, and children of forks, have for sure.
    :raises StoreError: ``refused`` when they are not those of one SQLite alone.
    """

    def __init__(self, paths: Sequence[str], files: Sequence[File], known: frozenset[int]) -> None:
        self._paths: Final = paths
        self._files: Final = files
        seen = descriptors(files)
        self._index: Final = self._of_index(seen)
        if len(self._index - known) > (0 if known else 1):
            raise open_twice(paths[2])
        if seen is not None and seen.of and not self._index and sys.platform == "linux":
            # What SQLite has open is another one.
            raise self._lost(2)
        self._by: Final[list[tuple[int, File, int, int]]] = []
        # Linux shows the locks, too, where it shows this; other systems that imitate it show neither.
        if seen is None or not any(b"mnt_id:" in _told(number) for number in self._index):
            return
        for at, start, length in IN_USE_LOCKS:
            owners = (number for number, file in seen.of.items() if file == files[at])
            taken = next((number for number in owners if _has_lock(number, start, length)), None)
            if taken is None:
                raise self._lost(at)
            self._by.append((taken, files[at], start, length))

    @property
    def index(self) -> frozenset[int]:
        """The descriptors of the index that are known."""
        return self._index

    def check(self) -> None:
        """Refuses when a lock is gone: two looks at what the kernel has at hand.

        :raises StoreError: ``refused``
        """
        for number, file, start, length in self._by:
            if file_of(number) != file or not _has_lock(number, start, length):
                raise self._lost(self._files.index(file))
        if any(file_of(number) != self._files[2] for number in self._index):
            raise self._lost(2)

    def check_alone(self) -> None:
        """Refuses when another copy of SQLite has the index open, too; and then as :meth:`check`.

        In this order: one that is closed meanwhile takes the locks with it.

        :raises StoreError: ``refused``
        """
        if self._index and self._of_index(descriptors(self._files)) - self._index:
            raise open_twice(self._paths[2])
        self.check()

    def is_sound(self) -> bool:
        """Whether SQLite may close what it has open here."""
        try:
            self.check_alone()
        except Exception:  # noqa: BLE001, also of an interpreter that ends
            return False
        return True

    def descriptors(self) -> Optional[Descriptors]:
        """All descriptors of the files as they are now, if they are all there."""
        try:
            self.check_alone()
            seen = descriptors(self._files) if self._index else None
        except StoreError:
            return None
        return seen

    def _of_index(self, seen: Optional[Descriptors]) -> frozenset[int]:
        return frozenset(number for number, file in seen.of.items() if file == self._files[2]) if seen else frozenset()

    def _lost(self, at: int) -> StoreError:
        return StoreError(
            "refused",
            f"{self._paths[at]}: this process has lost its locks, since something in it closed a descriptor of this "
            "file: a second copy of SQLite, code that opened the file itself, or a daemon that closes its descriptors. "
            "Others may be granted the same numbers, so this process grants none any more. Restart it, with one copy "
            "of SQLite; in a daemon, open the store after the descriptors were closed",
        )


def open_twice(index: str) -> StoreError:
    """Two copies of SQLite in one process undo each other's locks."""
    return StoreError(
        "refused",
        f"something else in this process has {index} open: a second copy of unalike or of SQLite, or code that opened "
        "the file itself. They undo each other's locks, and others would be granted the same numbers. Load one copy of "
        "each; if the program opens the file by sqlite3, too, let it open this store first",
    )


class Mark:
    """Tells other copies of this library in this process that this one has a file open: by a file in memory, whose name
    they find among the descriptors. The Rust library does and looks for the same (``adapters/sqlite/src/copies.rs``).
    """

    @classmethod
    def of(cls, file: str) -> Optional[Mark]:
        """:raises StoreError: ``refused`` when another copy has it open."""
        try:
            return cls(file, os.stat(os.path.dirname(file)))
        except OSError:
            # SQLite says what it lacks.
            return None

    def __init__(self, file: str, folder: os.stat_result) -> None:
        self._number: Optional[int] = None
        self._file: Optional[File] = None
        name = os.fsencode(f"unalike-sqlite-{os.getpid()}-{folder.st_dev:x}-{folder.st_ino:x}-")
        name += os.fsencode(os.path.basename(file))[-_NAME_MAX_BYTES:] + b"-"
        copy = os.fsencode(f"{id(_COPY):x}")
        try:
            self._number = os.memfd_create(os.fsdecode(name + copy))  # type: ignore[attr-defined,unused-ignore]
            self._file = file_of(self._number)
        except (AttributeError, OSError, ValueError):
            # A system that has no such files, or a sandbox that allows none.
            pass
        if _is_marked_by_another(name, copy):
            self.remove()
            raise open_twice(file)

    def remove(self) -> None:
        """After the last connection was closed."""
        number, self._number = self._number, None
        # Whoever closed it has given its number to another file, perhaps.
        if number is not None and self._file is not None and file_of(number) == self._file:
            os.close(number)


_COPY: Final[list[object]] = []
"""Its address tells this copy of the library from others."""


def _is_marked_by_another(name: bytes, copy: bytes) -> bool:
    folder = _FOLDERS[0].encode()
    try:
        numbers = os.listdir(folder)
    except OSError:
        return False
    for number in numbers:
        try:
            target = os.readlink(folder + b"/" + number)
        except OSError:
            continue
        # The Node package marks by a file that is deleted at once.
        target = target[len(b"/memfd:") :] if target.startswith(b"/memfd:") else os.path.basename(target)
        by = target[len(name) :].partition(b" ")[0] if target.startswith(name) else copy
        if by != copy and by and not by.strip(b"0123456789abcdef"):
            return True
    return False
