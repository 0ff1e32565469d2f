"""Where the database is, and how it is used: the URL, with the parameters that the ``unalike`` command knows."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from typing import Callable, Final, Optional
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from ._given import text_given
from .mysql_server import refused
from .store import StoreError

_SSL_MODES: Final = ("disabled", "preferred", "required", "verify_ca", "verify_identity")

_PARAMETERS: Final = (
    "dialect, ssl-mode, ssl-ca, create, connections, connect-timeout-ms, request-timeout-ms, durability, identity, "
    "password-file and password-env"
)

_DIALECTS: Final = (
    "leaf",
    "tinyid",
    "cosid",
    "sequence-table",
    "id-generator",
    "batch",
    "slow-ordered",
    "ticket",
)

_PASSWORD_BYTES_MAX: Final = 4_096
"""A password file may have this many bytes."""


@dataclass(frozen=True)
class Settings:
    """What the options say, with all defaults."""

    at: str
    """Host, port and database, for messages."""
    host: str
    port: int
    user: str
    password: Optional[str]
    database: str
    ssl_mode: str
    tls: Optional[ssl.SSLContext]
    create_tables: bool
    connections_max: int
    connect_timeout: float
    """In seconds, as the next."""
    request_timeout: float
    assume_durable: bool
    assume_identity: bool
    create_tags: bool
    tags_max: int
    max_horizon_ms: int
    max_skew_ms: int
    warn: Callable[[str], None]

    def __repr__(self) -> str:
        # Never the password.
        return f"Settings({self.at!r})"


def read_options(
    url: str,
    *,
    password: Optional[str],
    create_tags: bool,
    tags_max: int,
    max_horizon_ms: int,
    max_skew_ms: int,
    warn: Callable[[str], None],
) -> Settings:
    """Reads the options.

    :raises StoreError: ``refused``, saying which part is wrong. No message holds the password.
    """
    parts = _parts(text_given("the address", url))
    # One that is empty may be right.
    if password:
        text_given("the password", password)
    try:
        host, port = parts.hostname or "localhost", parts.port or 3306
    except ValueError:
        raise refused("the store's URL has a port that is none: write mysql://USER@HOST:PORT/DATABASE") from None
    database = parts.path.lstrip("/")
    if not database:
        raise refused("the store's URL names no database: write mysql://USER@HOST/DATABASE")
    if not parts.username:
        # As the Rust adapter: its driver would take root.
        raise refused("the store's URL names no user: write mysql://USER@HOST/DATABASE")
    passwords = [] if password is None else [password]
    if parts.password:
        passwords.append(_decoded(parts.password, "password"))
    ssl_mode, ssl_ca = "preferred", None
    create_tables, connections_max = True, 10
    connect_ms, request_ms = 3_000, 5_000
    assume_durable = assume_identity = False
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name == "dialect":
            _check_dialect(value)
        elif name == "ssl-mode":
            ssl_mode = value.lower()
            if ssl_mode not in _SSL_MODES:
                raise _wrong(name, value, "disabled, preferred, required, verify_ca or verify_identity")
        elif name == "ssl-ca":
            ssl_ca = value
        elif name == "create":
            create_tables = _chosen(name, value, {"true": True, "false": False}, "true or false")
        elif name == "connections":
            connections_max = _whole(name, value, 10_000)
        elif name == "connect-timeout-ms":
            connect_ms = _whole(name, value, 600_000)
        elif name == "request-timeout-ms":
            request_ms = _whole(name, value, 600_000)
        elif name == "durability":
            assume_durable = _chosen(name, value, {"checked": False, "assumed": True}, "checked or assumed")
        elif name == "identity":
            assume_identity = _chosen(name, value, {"checked": False, "assumed": True}, "checked or assumed")
        elif name == "password-file":
            passwords.append(_read_password(value))
        elif name == "password-env":
            passwords.append(_password_of(value))
        elif name == "password":
            raise refused("the store's password belongs before the @, into a password-file=PATH or a password-env=NAME")
        else:
            raise refused(f"the store's parameter {name!r} is unknown: there are {_PARAMETERS}")
    if not 0 <= tags_max < 2**64:
        raise refused(f"tags_max is {tags_max}, it must be 0 to 2^64 - 1")
    if len(passwords) > 1:
        raise refused("the store's password is given in more than one way")
    shown_host = f"[{host}]" if ":" in host else host
    return Settings(
        at=f"{shown_host}:{port}/{database}",
        host=host,
        port=port,
        user=_decoded(parts.username, "user"),
        password=passwords[0] if passwords else None,
        database=_decoded(database, "database"),
        ssl_mode=ssl_mode,
        tls=_tls(ssl_mode, ssl_ca),
        create_tables=create_tables,
        connections_max=connections_max,
        connect_timeout=connect_ms / 1_000,
        request_timeout=request_ms / 1_000,
        assume_durable=assume_durable,
        assume_identity=assume_identity,
        create_tags=create_tags,
        tags_max=tags_max,
        max_horizon_ms=max_horizon_ms,
        max_skew_ms=max_skew_ms,
        warn=warn,
    )


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
    except ValueError:
        # Its own message would hold the URL, and so the password.
        raise refused("the store's URL cannot be read: write mysql://USER@HOST/DATABASE") from None
    if parts.scheme not in ("mysql", "mariadb"):
        raise refused(f"the store's scheme is {parts.scheme!r}, it must be mysql")
    # Else what follows such a character would be taken for the host's, and shown.
    user, _, _ = parts.netloc.rpartition("@")
    if "@" in parts.path or "@" in user or parts.fragment:
        raise refused("the user and password in the store's URL must have @ / ? # percent-encoded (%40 %2F %3F %23)")
    return parts


def _tls(mode: str, authorities: Optional[str]) -> Optional[ssl.SSLContext]:
    if mode == "disabled":
        return None
    try:
        context = ssl.create_default_context(cafile=authorities)
    except (OSError, ssl.SSLError) as error:
        raise refused(f"the file {authorities!r}, which ssl-ca names, cannot be read: {error}") from error
    # Certificates that servers make for themselves are not as strict as newer versions of Python want them.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    context.check_hostname = mode == "verify_identity"
    context.verify_mode = ssl.CERT_REQUIRED if mode in ("verify_ca", "verify_identity") else ssl.CERT_NONE
    return context


def _decoded(text: str, what: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise refused(f"the {what} in the store's URL is not percent-encoded as UTF-8") from None


def _check_dialect(name: str) -> None:
    if name in _DIALECTS:
        raise refused(
            f"this program uses unalike's own tables alone, and the dialect {name} is for those of another system: run "
            "the `unalike` server with this URL, and take the numbers from it"
        )
    if name != "unalike":
        raise _wrong("dialect", name, "unalike")


def _wrong(name: str, value: str, what: str) -> StoreError:
    return refused(f"the store's parameter {name} is {value!r}, it must be {what}")


def _chosen(name: str, value: str, choices: dict[str, bool], what: str) -> bool:
    if value not in choices:
        raise _wrong(name, value, what)
    return choices[value]


def _whole(name: str, value: str, greatest: int) -> int:
    number = int(value) if value.isascii() and value.isdigit() and len(value) < 10 else 0
    if not 1 <= number <= greatest:
        raise _wrong(name, value, f"a whole number from 1 to {greatest}")
    return number


def _password_of(variable: str) -> str:
    password = os.environ.get(variable)
    if password is None:
        raise refused(f"the variable {variable!r}, which password-env names, has no text")
    return password


def _read_password(path: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(_PASSWORD_BYTES_MAX + 1)
    except OSError as error:
        raise refused(f"the password file {path} cannot be read: {error}") from error
    if len(data) > _PASSWORD_BYTES_MAX:
        raise refused(f"the password file {path} is longer than {_PASSWORD_BYTES_MAX} bytes")
    try:
        # Editors end a file with a line's end.
        password = data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise refused(f"the password file {path} is not text") from None
    if not password:
        raise refused(f"the password file {path} is empty")
    return password
