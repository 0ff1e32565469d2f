"""Segments and leases in MySQL and MariaDB, in the tables that the ``unalike`` command and its server use."""

from __future__ import annotations

from typing import Optional
from urllib.parse import quote

from ._given import text_given, url_given
from .store import StoreError
from .stores import Store

__all__ = ["MysqlStore"]


class MysqlStore(Store):
    """Segments and leases in one database, over one pool of connections, for any number of threads.

    Every connection is set and checked before it is used: commits must be durable, and the server must be the one that
    was used before. Each statement that grants states the same as its condition. A statement whose answer is lost
    counts as done, and what it granted is never offered again. A child of a fork opens connections of its own.

    The URL is ``mysql://USER[:PASSWORD]@HOST[:PORT]/DATABASE[?PARAMETERS]``, or ``mariadb:``; the parameters are those
    of the ``unalike`` command, ``dialect`` among them: the tables of Leaf, tinyid, CosId and others in place.

    :param url: Where the database is.
    :param password: The password, instead of one in the URL.
    :param create_tags: Whether tags are created on first use. By default they are in tables of unalike's own.
    :param tags_max: How many tags there may be, sub-keys not counted.
    :param max_horizon_ms: How far ahead of the server's clock a lease may reach: 1 ms to 366 days.
    :param max_skew_ms: How far a holder's clock may be from the server's, up to an hour.
    :raises StoreError: ``unavailable`` when the server does not answer; ``refused`` when it denies access, when its
        commits are not durable, when it is another server than before, when its tables are missing, of another version
        or not what grants can rest on, and for options that are wrong. Each says what to do.

    >>> from unalike.mysql import MysqlStore
    >>> store = MysqlStore("mysql://ids@db.example/ids?password-env=DB_PASSWORD")  # doctest: +SKIP
    >>> store.allocate("order", 100, 0)  # doctest: +SKIP
    Segment(start=1, end=101, stride=1, generation=0, version=117670595261956096)
    """

    def __init__(
        self,
        url: str,
        *,
        password: Optional[str] = None,
        create_tags: Optional[bool] = None,
        tags_max: int = 1_000_000,
        max_horizon_ms: int = 600_000,
        max_skew_ms: int = 10_000,
    ) -> None:
        super().__init__(
            _with_password(url_given(url, _is_scheme, "mysql", "mysql://USER@HOST/DATABASE"), password),
            create_tags=create_tags,
            tags_max=tags_max,
            lease_horizon_max_ms=max_horizon_ms,
            lease_skew_max_ms=max_skew_ms,
        )


def _is_scheme(scheme: str) -> bool:
    return scheme in ("mysql", "mariadb")


def _with_password(url: str, password: Optional[str]) -> str:
    # One that is empty may be right.
    if not password:
        return url
    try:
        quoted = quote(text_given("the password", password), safe="")
    except UnicodeEncodeError:
        raise StoreError("refused", "the password is not valid Unicode") from None
    place, question, parameters = url.partition("?")
    before, at, after = place.rpartition("@")
    scheme, _, user = before.partition("://")
    if not at or not user:
        raise StoreError("refused", "the store's URL names no user: write mysql://USER@HOST/DATABASE")
    if ":" in user:
        raise StoreError("refused", "the store's password is given in more than one way: keep one")
    return f"{scheme}://{user}:{quoted}@{after}{question}{parameters}"
