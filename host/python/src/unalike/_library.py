"""The library of the Rust host, ``unalike._native``: the components in wasmtime, and the stores."""

from __future__ import annotations

from typing import Any

from ._process import end_at_exit
from .errors import IdsError, caused

__all__ = ["native"]


def native() -> Any:
    """The library, which the package is built with. The first call loads it.

    :raises IdsError: ``component``
    """
    try:
        from . import _native
    except ImportError as error:
        what = (
            "this interpreter cannot load the library that unalike is built with, or this installation has none: "
            "install a wheel for this platform, or build the package in a clone of its repository"
        )
        raise caused(IdsError("component", f"{what} ({error})"), error) from None
    end_at_exit(_native.end)
    return _native
