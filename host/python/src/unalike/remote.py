"""Segments and leases of unalike servers, over HTTP, by the Rust host.

Which server is asked, and when the next one is, is up to that host: the first of them that answers, and another one
only where the one before proves that it granted nothing. An answer that is lost, cut or not this request's is
``outcome-unknown``: what it may have granted is burnt.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal, Optional, Union
from urllib.parse import parse_qsl, urlencode

from ._given import text_given
from ._process import MARK, uninterrupted_calls
from .store import StoreError
from .stores import Store

if TYPE_CHECKING:
    from .stores import _Opened

__all__ = ["RemoteStore"]

_TIMEOUT_MAX_S: Final = 600
_PARAMETERS: Final = ("store", "ssl-ca", "connect-timeout-ms", "request-timeout-ms")
_FORM: Final = "write http://HOST:PORT or https://HOST, and further hosts after commas"


@uninterrupted_calls
class RemoteStore(Store):
    """Segments and leases of unalike servers. Any number of threads may share it; a forked child has connections of its
    own.

    :param servers: ``http://HOST:PORT`` or ``https://HOST``, several separated by commas or in a list, in order of
        preference. All must have one store.
    :param token: A token of the scope ``lease``, where the servers want one.
    :param store: The identity of the store of segments, as ``GET /v1/store`` answers it: 32 hexadecimal digits. Without
        it, several servers must all answer before the first is used.
    :param lease_store: The same of the store of leases.
    :param ssl_ca: A file with the certificates of the authorities that ``https`` trusts, as PEM, in the place of the
        system's. The servers' certificates must have the names by which they are addressed.
    :param connect_timeout: How long opening a connection may take, TLS included, in seconds up to 600: 1 by default.
        After that the next server is asked.
    :param request_timeout: How long a request may take in all, in seconds up to 600: 5 by default. After that what it
        may have been granted is burnt.

    A URL may have the parameters that the Rust library knows, too: ``store``, ``ssl-ca``, ``connect-timeout-ms`` and
    ``request-timeout-ms``, as in ``https://ids-1.example,ids-2.example?ssl-ca=ca.pem``.

    :raises StoreError: ``refused``, when an argument cannot be used. The servers are first asked when numbers are.

    The namespace of a lease is a snowflake that the servers have in their configuration, with the same layout.

    >>> from unalike.remote import RemoteStore
    >>> RemoteStore("http://ids-1.example:8080,ids-2.example:8080")
    <RemoteStore http://ids-1.example:8080,ids-2.example:8080>
    """

    def __init__(
        self,
        servers: Union[str, Sequence[str]],
        *,
        token: Optional[str] = None,
        store: Optional[str] = None,
        lease_store: Optional[str] = None,
        ssl_ca: Optional[Union[str, os.PathLike[str]]] = None,
        connect_timeout: Optional[float] = None,
        request_timeout: Optional[float] = None,
    ) -> None:
        url, parameters = _together(servers)
        for parameter, argument in (
            ("store", store),
            ("ssl-ca", None if ssl_ca is None else os.fspath(ssl_ca)),
            ("connect-timeout-ms", _ms("connect_timeout", connect_timeout)),
            ("request-timeout-ms", _ms("request_timeout", request_timeout)),
        ):
            if argument is not None and parameter in parameters:
                raise _unusable(f"has the parameter {parameter}, which is given by itself as well")
            if argument is not None:
                parameters[parameter] = argument
        of_leases = {name: value for name, value in parameters.items() if name != "store"}
        if lease_store is not None:
            of_leases["store"] = lease_store
        # What the servers were found to have: others at the same addresses are refused, also when all is opened anew.
        self._found: Final[dict[str, str]] = {}
        super().__init__(
            _with_parameters(url, parameters),
            leases=_with_parameters(url, of_leases),
            token=None if token is None else _checked_token(token),
        )

    def check(self) -> None:
        """Asks the servers which store of segments they have, as the first request does.

        :raises StoreError: ``unavailable`` when no server answers, or when one of several does not; ``refused`` when
            they have different stores, or want a token.
        """
        self._ask(lambda stores: stores.check())

    def close(self) -> None:
        """Closes the connections once nobody uses them. The next request opens others."""
        opened = self._opened
        if opened is not None and MARK[0] == opened.mark:
            self._opened = None

    def _check_answer(self, opened: _Opened, part: Literal["store", "leases"]) -> None:
        if part in opened.checked:
            return
        # They have said it, and are not asked again.
        found = opened.stores.lease_identity() if part == "leases" else opened.stores.identity()
        if found is not None and self._found.setdefault(part, found) != found:
            what = f"and {self._found[part]} was expected: what it granted is not used. Make another RemoteStore for it"
            raise StoreError("refused", f"{self.address} has the store {found}, {what}")
        opened.checked.add(part)

    def _options_anew(self) -> str:
        options = json.loads(self._options)
        for part, identity in self._found.items():
            url, _, query = options[part].partition("?")
            options[part] = _with_parameters(url, {**dict(parse_qsl(query)), "store": identity})
        return json.dumps(options)

    def __repr__(self) -> str:
        return f"<RemoteStore {self.address}>"


def _together(servers: Union[str, Sequence[str]]) -> tuple[str, dict[str, str]]:
    """The servers as one URL, and its parameters. What a host looks like is read by the Rust host.

    :raises StoreError: ``refused``, in words that hold no secret.
    """
    is_one = isinstance(servers, (str, bytes)) or not isinstance(servers, Iterable)
    schemes: set[str] = set()
    hosts: list[str] = []
    parameters: dict[str, str] = {}
    for given in [servers] if is_one else list(servers):
        scheme, separator, rest = text_given("the address", given).partition("://")
        if scheme not in ("http", "https") or not separator:
            raise _unusable("has another scheme than http and https")
        if "@" in rest:
            # Anywhere: a password may have a ? in it, and must not be told.
            what = "has a user or password, which no server takes: leave out what is before the @, and give token="
            raise _unusable(f"{what}; in a path an @ is written %40")
        named, _, query = rest.partition("?")
        for name, value in parse_qsl(query, keep_blank_values=True):
            if name in parameters:
                raise _unusable(f"has the parameter {name} twice")
            if name in ("token", "password"):
                raise _unusable("has a secret in it: give the token by itself, as token=")
            if name not in _PARAMETERS:
                raise _unusable(f"has the parameter {name!r}, and there are {', '.join(_PARAMETERS)}")
            parameters[name] = value
        if "://" in named:
            raise _unusable("has a scheme after a comma: hosts there have none of their own")
        schemes.add(scheme)
        hosts.append(named.removesuffix("/"))
    if not hosts:
        raise _unusable("is missing: give one server at least")
    if len(schemes) > 1:
        raise _unusable("mixes http and https")
    return f"{schemes.pop()}://{','.join(hosts)}", parameters


def _with_parameters(url: str, parameters: dict[str, str]) -> str:
    try:
        return f"{url}?{urlencode(parameters)}" if parameters else url
    except UnicodeEncodeError:
        raise _unusable("has a parameter that is not valid Unicode") from None


def _ms(name: str, seconds: Optional[float]) -> Optional[str]:
    """A time in whole milliseconds, of which a part is one more."""
    if seconds is None:
        return None
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not is_number or not 0 < seconds <= _TIMEOUT_MAX_S:
        expected = f"a number of seconds above 0 and up to {_TIMEOUT_MAX_S}"
        raise StoreError("refused", f"{name} is {seconds!r}, it must be {expected}")
    return str(math.ceil(seconds * 1_000))


def _unusable(what: str) -> StoreError:
    return StoreError("refused", f"the address of the servers {what}; {_FORM}")


def _checked_token(token: str) -> str:
    """No message shows it.

    :raises StoreError: ``refused``
    """
    text_given("the token", token)
    if token.strip() != token:
        raise StoreError("refused", "the token has a space or a line end at an end: strip it")
    if token.lower().startswith("bearer "):
        raise StoreError("refused", "the token begins with Bearer: leave that out")
    return token
