"""Segments and leases in one SQLite file, in the tables that the ``unalike`` command and its server use.

Every grant is on the disk before anybody hears of it. The file must lie on a local disk: write-ahead logging does not
work over network file systems.

Outside the promise: a file that is deleted, or restored from an old backup, takes its knowledge of what was granted
with it. A program that has the file open notices before its next grant that it was deleted, moved or replaced (or the
files beside it), and grants nothing any more.
"""

from __future__ import annotations

import os
from typing import Final, Union

from ._given import text_given
from .store import StoreError
from .stores import Store

__all__ = ["SqliteStore"]

_URL: Final = "sqlite://"

_OTHERS: Final = {
    "sqlite": "write the path alone, or sqlite://PATH as a text",
    "mysql": "give it to MysqlStore",
    "mariadb": "give it to MysqlStore",
    "redis": "give it to RedisStore",
    "rediss": "give it to RedisStore",
    "http": "give it to RemoteStore",
    "https": "give it to RemoteStore",
}

_BUSY_TIMEOUT_MS: Final = 5_000
_BUSY_TIMEOUT_MAX_MS: Final = 600_000


class SqliteStore(Store):
    """Segments and leases in one SQLite file, for any number of threads, and for all processes of a machine.

    One process writes at a time, and the others wait for it up to the busy timeout. A fork closes the file, and the
    parent and the child open it anew. A child is refused after a fork that Python does not hear of.

    SQLite loses its locks when *any* descriptor of the file is closed in the process: by the module ``sqlite3``, which
    is a second SQLite, or by code that reads the file. On Linux the store notices that before its next grant, and
    grants nothing any more until the process is started again. Look at the file in another process, such as by the
    command ``sqlite3``.

    Raising, ending, importing and resizing stay with the ``unalike`` command. A store that is a stripe of a set is
    refused: give all of them to :class:`unalike.stores.Store`.

    :param path: The file; SQLite puts a ``-wal`` and a ``-shm`` file beside it. Or the URL that the ``unalike``
        command takes, ``sqlite://PATH``, with its parameters ``create`` and ``busy-timeout-ms``, which then decide. A
        path that would be another one as a URL is refused: one with a ``?`` or ``#``, or with a ``%`` before two
        hexadecimal digits.
    :param create: Create the file when it does not exist. Its directory must exist.
    :param create_tags: Whether tags are created on first use.
    :param tags_max: How many tags there may be, sub-keys not counted.
    :param max_horizon_ms: How far ahead of the clock a lease may reach: 1 ms to 366 days.
    :param max_skew_ms: How far a holder's clock may be from the store's, up to an hour.
    :param busy_timeout_ms: How long a request waits for other processes, and for its turn in this one (there a second
        at least): 0 to 600000 ms.
    :raises StoreError: ``refused`` when the file or its directory is missing, is not writable, or belongs to another
        program or to a newer version of this one; ``corrupt`` when it is no database or a damaged one; ``unavailable``
        when another process keeps it locked. Each says what to do.

    >>> import tempfile
    >>> from unalike.sqlite import SqliteStore
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = SqliteStore(f"{folder}/ids.sqlite")
    ...     segment = store.allocate("order", 100, 0)
    ...     store.close()
    >>> segment.start, segment.end
    (1, 101)
    """

    def __init__(
        self,
        path: Union[str, os.PathLike[str]],
        *,
        create: bool = True,
        create_tags: bool = True,
        tags_max: int = 1_000_000,
        max_horizon_ms: int = 600_000,
        max_skew_ms: int = 10_000,
        busy_timeout_ms: int = _BUSY_TIMEOUT_MS,
    ) -> None:
        super().__init__(
            _url_of(path, create, busy_timeout_ms),
            create_tags=create_tags,
            tags_max=tags_max,
            lease_horizon_max_ms=max_horizon_ms,
            lease_skew_max_ms=max_skew_ms,
        )


def _url_of(given: Union[str, os.PathLike[str]], create: bool, busy_timeout_ms: int) -> str:
    """The URL of a path, or of a URL whose own parameters decide."""
    text = text_given("the path", os.fsdecode(given) if isinstance(given, (os.PathLike, bytes)) else given)
    is_whole = isinstance(busy_timeout_ms, int) and not isinstance(busy_timeout_ms, bool)
    if not is_whole or not 0 <= busy_timeout_ms <= _BUSY_TIMEOUT_MAX_MS:
        what = f"a busy timeout of {busy_timeout_ms!r} ms was asked for, 0 to {_BUSY_TIMEOUT_MAX_MS} is allowed"
        raise StoreError("refused", what)
    try:
        text.encode()
    except UnicodeError:
        what = f"the path {text!r} is not UTF-8, which SQLite needs: choose another"
        raise StoreError("refused", what) from None
    place, _, query = text.partition("?")
    if not text.startswith(_URL):
        _refuse_others(text)
        if "?" in text:
            what = f"the path {text!r} has a ?, after which a URL has parameters: name or rename the file without"
            raise StoreError("refused", what)
        place = f"{_URL}{place}"
    parameters = [] if create else ["create=false"]
    if busy_timeout_ms != _BUSY_TIMEOUT_MS:
        parameters.append(f"busy-timeout-ms={busy_timeout_ms}")
    # Of two with one name the last one counts.
    parameters += [query] if query else []
    return f"{place}?{'&'.join(parameters)}" if parameters else place


def _refuse_others(path: str) -> None:
    """Refuses URLs of other stores, which would be files of that name here."""
    scheme, separator, rest = path.partition(":")
    if scheme in _OTHERS and (rest.startswith("/") or (separator and scheme == "sqlite")):
        # A Path of a URL has lost a slash.
        message = f"the path is a URL that begins with {scheme}: {_OTHERS[scheme]}"
        if scheme == "sqlite" and os.path.exists(path):
            # Earlier versions took all of it for the path.
            message += f"; a file {path!r} is there: rename it to go on with it"
        raise StoreError("refused", message)
