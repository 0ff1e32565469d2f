"""The one error of the library."""

from __future__ import annotations

from typing import Any, Final, Literal, Optional

from .store import StoreError, shown

__all__ = ["IdsError", "IdsErrorKind"]

IdsErrorKind = Literal[
    "timeout",
    "not_yet",
    "store",
    "lease_ended",
    "grant_refused",
    "clock_moved_back",
    "clock_before_epoch",
    "exhausted",
    "closed",
    "argument_invalid",
    "name_invalid",
    "layout",
    "format",
    "format_misfit",
    "format_bound",
    "text",
    "open_otherwise",
    "mode_bound",
    "rebuilt",
    "nested",
    "component",
]
"""What happened.

``timeout``: the store did not answer within ``wait_max``, and nothing was buffered. ``not_yet``: ids are available only
later than the call may wait. ``store``: the store refused, and waiting does not help. ``lease_ended``: the lease of a
snowflake generator ended, and there is no other. ``grant_refused``: the store broke its promise; look at it.
``clock_moved_back``, ``clock_before_epoch``: the clock of this machine. ``exhausted``: no number, or no timestamp, is
left. ``closed``: the generator was closed. ``argument_invalid``, ``name_invalid``, ``layout``: the caller's arguments.
``format``, ``text``: an id that cannot be shown, or a text that is none. ``format_misfit``: the format does not fit the
generator. ``format_bound``: the tag or the snowflake has another format in its store. ``open_otherwise``: it is open in
this process with other options. ``mode_bound``: the tag has another mode in its store. ``rebuilt``: the component
failed and is built anew; try again. ``nested``: the call came from inside of another one, and what is in hand did not
suffice. ``component``: it cannot be compiled or loaded.
"""

_RETRYABLE: Final = (
    "timeout",
    "not_yet",
    "lease_ended",
    "clock_moved_back",
    "clock_before_epoch",
    "rebuilt",
    "nested",
    "grant_refused",
)


class IdsError(Exception):
    """Why no ids were handed out. None were lost.

    >>> from unalike import Ids, IdsError
    >>> from unalike.memory import MemoryStore
    >>> with Ids(segments=MemoryStore()) as ids:
    ...     orders = ids.sequence("order")
    >>> try:
    ...     orders.next()
    ... except IdsError as error:
    ...     error.kind, error.name, error.is_retryable
    ('closed', 'order', False)
    """

    def __init__(
        self,
        kind: IdsErrorKind,
        message: str,
        *,
        name: Optional[str] = None,
        retry_after_ms: Optional[int] = None,
        **figures: Any,
    ) -> None:
        super().__init__(message)
        self.kind: Final[IdsErrorKind] = kind
        """What happened."""
        self.name: Final[Optional[str]] = name
        """The tag, with its sub-key if it has one, or the namespace."""
        self.figures: Final[dict[str, Any]] = figures
        """The figures of the message by name, such as ``waited_ms`` or ``behind_ms``."""
        self._retry_after_ms = retry_after_ms

    @property
    def store_error(self) -> Optional[StoreError]:
        """What the store said last, which is also the ``__cause__``."""
        cause = self.__cause__
        return cause if isinstance(cause, StoreError) else None

    @property
    def is_retryable(self) -> bool:
        """Whether the same call may succeed later."""
        if self.kind == "store":
            said = self.store_error
            return said is not None and said.is_retryable
        return self.kind in _RETRYABLE

    @property
    def retry_after_ms(self) -> Optional[int]:
        """After how many milliseconds it may, where that is known."""
        return self._retry_after_ms

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.kind, str(self), self.name, self._retry_after_ms, self.figures, self.__cause__)


def _again(
    kind: IdsErrorKind,
    message: str,
    name: Optional[str],
    retry_after_ms: Optional[int],
    figures: dict[str, Any],
    cause: Optional[BaseException],
) -> IdsError:
    error = IdsError(kind, message, name=name, retry_after_ms=retry_after_ms, **figures)
    error.__cause__ = cause
    return error


def caused(error: IdsError, cause: Optional[BaseException]) -> IdsError:
    """The error with its cause."""
    error.__cause__ = cause
    return error


def because(cause: Optional[BaseException]) -> str:
    """The end of a message."""
    return f": {cause}" if cause is not None else ""


def argument_invalid(argument: str, value: object, expected: str) -> IdsError:
    """An argument or a field of one that is no such number or text. Nothing was changed."""
    message = f"{argument} is {_short(value)}, it must be {expected}"
    return IdsError("argument_invalid", message, argument=argument, value=value)


def as_written(error: IdsError, names: dict[str, str]) -> IdsError:
    """The error with the name of the argument as the caller wrote it; other errors as they are."""
    argument = error.figures.get("argument")
    if error.kind != "argument_invalid" or not isinstance(argument, str):
        return error
    name = names.get(argument, argument.replace("-", "_"))
    message = f"{name} is{str(error).removeprefix(f'{argument} is')}" if name != argument else str(error)
    return IdsError("argument_invalid", message, **{**error.figures, "argument": name})


def closed(name: str) -> IdsError:
    return IdsError("closed", f"no ids for {shown(name)}: this Ids was closed", name=name)


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001, such as a number of more digits than Python writes
        text = f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= 80 else f"{text[:77]}.."
