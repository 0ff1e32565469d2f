"""Whether what is given as a store is one: asked when it is given, and not at the first id."""

from __future__ import annotations

import inspect
from typing import Any, Final, Literal

from .errors import IdsError

__all__ = ["check_store"]

_METHODS: Final = {
    "segments": ("allocate", "release", "open_tag"),
    "leases": ("acquire", "extend", "release_lease"),
}


def check_store(argument: Literal["segments", "leases"], store: Any) -> None:
    """Checks that it has the methods which are called.

    :raises IdsError: ``argument_invalid``. A text is not shown: a URL may hold a password.
    """
    if store is None:
        return
    if isinstance(store, str):
        fault = "a text, it must be a store: give SqliteStore(..), MysqlStore(..), RedisStore(..) or RemoteStore(..)"
    elif isinstance(store, type):
        fault = f"the class {store.__name__}, it must be a store: write {store.__name__}(..)"
    elif inspect.isawaitable(store):
        fault = f"a {type(store).__name__}, it must be a store: await it first"
    else:
        missing = [name for name in _METHODS[argument] if not callable(getattr(store, name, None))]
        if not missing:
            return
        fault = f"a {type(store).__name__}, it must be a store, and has no method {missing[0]}"
    raise IdsError("argument_invalid", f"{argument} is {fault}", argument=argument)
