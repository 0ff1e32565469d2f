"""Which file is meant: a path, or the URL that the ``unalike`` command takes."""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple, Optional, Union

from ._given import text_given
from .store import StoreError

BUSY_TIMEOUT_MAX_MS: Final = 600_000

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


class Place(NamedTuple):
    """A file, and what its URL says of it."""

    path: str
    create: Optional[bool] = None
    busy_timeout_ms: Optional[int] = None


def read_path(given: Union[str, os.PathLike[str]]) -> Place:
    """Reads a path, or ``sqlite://PATH[?PARAMETERS]`` as the Rust adapter does.

    :raises StoreError: ``refused``
    """
    text = text_given("the path", os.fsdecode(given) if isinstance(given, (os.PathLike, bytes)) else given)
    if text.startswith(_URL):
        return _of_url(text)
    scheme, separator, rest = text.partition(":")
    if scheme in _OTHERS and (rest.startswith("/") or (separator and scheme == "sqlite")):
        # A Path of a URL has lost a slash.
        message = f"the path is a URL that begins with {scheme}: {_OTHERS[scheme]}"
        if scheme == "sqlite" and os.path.exists(text):
            # Earlier versions took all of it for the path.
            message += f"; a file {text!r} is there: rename it to go on with it"
        raise StoreError("refused", message)
    _check_plain(text)
    return Place(text)


def _of_url(text: str) -> Place:
    rest = text[len(_URL) :]
    path, _, query = rest.partition("?")
    # Earlier programs of unalike took all of it for the path, and made such a file.
    left_over = ""
    if rest != path and os.path.exists(rest):
        left_over = f"; a file {rest!r} is there, which earlier versions made of such a URL: rename it to go on with it"

    def wrong(what: str) -> StoreError:
        return StoreError("refused", f"the store {text!r} {what}{left_over}")

    if not path:
        raise wrong("names no file: write sqlite://PATH")
    _check_plain(path)
    if "#" in path or re.search("%[0-9a-fA-F]{2}", path):
        raise wrong(
            f"has a path that others would read as another one, {path!r}: a path is taken as it is written, and may "
            "have neither a # nor a % with two hexadecimal digits after it; name or rename the file without"
        )
    create, busy_timeout_ms = None, None
    for pair in filter(None, query.split("&")):
        name, _, value = pair.partition("=")
        if name == "create" and value in ("true", "false"):
            create = value == "true"
        elif name == "busy-timeout-ms" and re.fullmatch("[0-9]{1,6}", value) and int(value) <= BUSY_TIMEOUT_MAX_MS:
            busy_timeout_ms = int(value)
        elif name in ("create", "busy-timeout-ms"):
            expected = f"create is true or false, busy-timeout-ms a whole number from 0 to {BUSY_TIMEOUT_MAX_MS}"
            raise wrong(f"has {name}={value}: {expected}")
        else:
            known = "there are create (true or false) and busy-timeout-ms"
            raise wrong(f"has the parameter {name!r}, which is unknown: {known}")
    return Place(path, create, busy_timeout_ms)


def _check_plain(path: str) -> None:
    """Refuses what means no plain file to SQLite, and would be a file of that name here."""
    if path.startswith(":memory:"):
        raise StoreError("refused", f"{path} is no file, and numbers must be kept: name one; for tests use MemoryStore")
    if path.startswith("file:"):
        what = f"the path {path!r} means no plain file to SQLite, and numbers must be kept"
        raise StoreError("refused", f"{what}: write the path alone, or sqlite://PATH")
