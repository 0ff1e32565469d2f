"""Where Redis is and how it is used, as a URL says it.

``redis[s]://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE][?PARAMETERS]``
"""

from __future__ import annotations

import os
import re
import unicodedata
from dataclasses import dataclass, field, replace
from typing import Final, Optional
from urllib.parse import parse_qsl, unquote, urlsplit

from ._given import text_given
from .redis_growth import NUMBERS_MAX
from .store import StoreError

__all__ = ["RedisSettings", "read_redis_url"]

_PARAMETERS: Final = (
    "ssl-ca, prefix, raise-min, raise-max, connect-timeout-ms, request-timeout-ms, raise-timeout-ms, password-file and "
    "password-env"
)

_OF_DIALECTS: Final = ("shard", "epoch", "horizon-ms", "keys", "source-stopped")
"""Parameters of dialects that only the ``unalike`` server has."""

_PASSWORD_BYTES_MAX: Final = 4_096


@dataclass(frozen=True)
class RedisSettings:
    """Where Redis is, and how it is used."""

    host: str
    port: int
    database: int
    is_tls: bool
    username: Optional[str] = None
    password: Optional[str] = field(default=None, repr=False)
    ssl_ca: Optional[str] = None
    """A file with the certificates of the authorities to trust; the system's without it."""
    prefix: str = "unalike"
    """What unalike's keys begin with."""
    raise_min: int = 100_000
    raise_max: int = 1 << 40
    connect_timeout_ms: int = 1_000
    request_timeout_ms: int = 1_000
    raise_timeout_ms: int = 1_000

    @property
    def address(self) -> str:
        """Host, port and database, for messages."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}/{self.database}"


def read_redis_url(text: str) -> RedisSettings:
    """Reads a store's URL.

    :raises StoreError: ``refused``, saying which part is wrong. No message holds the password.
    """
    scheme, separator, _ = text_given("the address", text).partition("://")
    if not separator or re.search(r"[\s\x00-\x1f]", text):
        raise _refused("the store's URL cannot be read: write redis://HOST:PORT/DATABASE")
    if re.fullmatch(r"rediss?[-+](sentinel|cluster)", scheme):
        what = "neither Sentinel nor Cluster is supported: give the address that leads to the master, redis://HOST"
        raise _refused(f"{scheme}: {what}")
    if scheme not in ("redis", "rediss"):
        raise _refused(f"the store's scheme is {scheme!r}, it must be redis or rediss")
    try:
        url = urlsplit(text)
        host, port = url.hostname, url.port
    except ValueError:
        # Its error holds the URL, and so the password.
        raise _refused("the store's URL cannot be read: write redis://HOST:PORT/DATABASE") from None
    # Whatever follows such a host may belong to a password, and is not shown.
    if "#" in text or "@" in url.path or "@" in url.query:
        raise _refused(
            "the store's URL has a # or an @ behind its host: in the user's name and the password write %2F for /, %3F "
            "for ?, %23 for # and %40 for @, and %40 in a parameter"
        )
    database = url.path.strip("/")
    if database and not re.fullmatch(r"[0-9]{1,9}", database):
        raise _refused(f"the store's URL names the database {database!r}, it must be a number: redis://HOST/0")
    settings = RedisSettings(
        host=host or "localhost",
        port=6379 if port is None else port,
        database=int(database or 0),
        is_tls=scheme == "rediss",
        username=unquote(url.username or "") or None,
        password=unquote(url.password or "") or None,
    )
    passwords: list[str] = []
    for name, value in parse_qsl(url.query, keep_blank_values=True):
        settings = _with(settings, name, value, passwords)
    if len(passwords) > 1 or (passwords and settings.password is not None):
        raise _refused("the store's password is given in more than one way")
    if settings.raise_min > settings.raise_max:
        what = f"raise-min is {settings.raise_min} and raise-max {settings.raise_max}"
        raise _refused(f"{what}, they must be 1 to {NUMBERS_MAX}, in this order")
    return replace(settings, password=passwords[0]) if passwords else settings


def _with(settings: RedisSettings, name: str, value: str, passwords: list[str]) -> RedisSettings:
    def expected(what: str) -> StoreError:
        return _refused(f"the store's parameter {name} is {value!r}, it must be {what}")

    def whole(least: int, most: int) -> int:
        number = int(value) if re.fullmatch(r"[0-9]{1,20}", value) else -1
        if not least <= number <= most:
            raise expected(f"a whole number from {least} to {most}")
        return number

    if name == "dialect":
        if value != "unalike":
            raise _refused(
                f"the store's parameter dialect is {value!r}: here there is only unalike; run the `unalike` server for "
                "the others, and ask it over HTTP"
            )
    elif name == "ssl-ca":
        if not settings.is_tls:
            raise _refused("the store's parameter ssl-ca needs rediss://")
        return replace(settings, ssl_ca=value)
    elif name == "prefix":
        if not value or "{" in value or "}" in value or any(unicodedata.category(letter) == "Cc" for letter in value):
            raise expected("a word without braces")
        return replace(settings, prefix=value)
    elif name == "raise-min":
        return replace(settings, raise_min=whole(1, NUMBERS_MAX))
    elif name == "raise-max":
        return replace(settings, raise_max=whole(1, NUMBERS_MAX))
    elif name == "connect-timeout-ms":
        return replace(settings, connect_timeout_ms=whole(1, 600_000))
    elif name == "request-timeout-ms":
        return replace(settings, request_timeout_ms=whole(1, 600_000))
    elif name == "raise-timeout-ms":
        return replace(settings, raise_timeout_ms=whole(1, 600_000))
    elif name == "preheat":
        # What the `unalike` server does with its tags at the start. A program knows only the tags that it asks for.
        if value not in ("true", "false"):
            raise expected("true or false")
    elif name == "durability":
        # It means something only without a durable store, and here there always is one.
        if value not in ("checked", "assumed"):
            raise expected("checked or assumed")
    elif name == "password-file":
        passwords.append(_read_password(value))
    elif name == "password-env":
        password = os.environ.get(value)
        if password is None:
            raise _refused(f"the variable {value!r}, which password-env names, is not set")
        passwords.append(password)
    elif name == "password":
        raise _refused("the store's password belongs before the @, into a password-file=PATH or a password-env=NAME")
    elif name in _OF_DIALECTS:
        raise _refused(f"the store's parameter {name} belongs to a dialect that only the `unalike` server has")
    else:
        raise _refused(f"the store's parameter {name!r} is unknown: there are {_PARAMETERS}")
    return settings


def _read_password(path: str) -> str:
    """What the file holds, without the end of its line."""
    try:
        with open(path, "rb") as file:
            content = file.read(_PASSWORD_BYTES_MAX + 1)
    except OSError as error:
        raise _refused(f"the password file {path} cannot be read") from error
    if len(content) > _PASSWORD_BYTES_MAX:
        raise _refused(f"the password file {path} is longer than {_PASSWORD_BYTES_MAX} bytes")
    try:
        return re.sub(r"\r?\n\Z", "", content.decode())
    except UnicodeDecodeError:
        raise _refused(f"the password file {path} is not UTF-8") from None


def _refused(what: str) -> StoreError:
    return StoreError("refused", what)
