"""Texts that come from outside the program, such as addresses: whoever forgot one hears so."""

from __future__ import annotations

from collections.abc import Callable

from .store import StoreError

__all__ = ["text_given", "url_given"]


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


def url_given(value: object, is_scheme: Callable[[str], bool], named: str, form: str) -> str:
    """The URL of a store, its scheme in small letters.

    :param named: The scheme that it should have, for the message.
    :param form: What such a URL looks like.
    :raises StoreError: ``refused``
    """
    url = text_given("the address", value)
    scheme, separator, rest = url.partition("://")
    if not separator or not is_scheme(scheme.lower()):
        # What is none may be a part of a password.
        what = f"is {scheme!r}, it" if separator and scheme.isalnum() else "cannot be read, and"
        raise StoreError("refused", f"the store's scheme {what} must be {named}: write {form}")
    return f"{scheme.lower()}://{rest}"
