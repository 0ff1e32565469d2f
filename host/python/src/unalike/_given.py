"""Texts that come from outside the program, such as addresses: whoever forgot one hears so."""

from __future__ import annotations

from .store import StoreError

__all__ = ["text_given"]


def text_given(what: str, value: object) -> str:
    """The text. It is never shown: it may hold a password.

    :raises StoreError: ``refused``
    """
    if value is None:
        raise StoreError("refused", f"{what} is None: is its environment variable set?")
    if not isinstance(value, str):
        raise StoreError("refused", f"{what} is of the type {type(value).__name__}, it must be a text")
    if not value.strip():
        raise StoreError("refused", f"{what} is empty: is its environment variable set?")
    return value
