"""The ports to stores: what a store grants, how it is asked, and why it grants nothing.

Stores are synchronous and may be called from several threads at once.
"""

from __future__ import annotations

import shlex
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, Optional, Protocol, Union, get_args

__all__ = [
    "ID_MAX",
    "SUB_SEPARATOR",
    "AdaptiveStep",
    "FixedStep",
    "FormatOwner",
    "FormatPart",
    "KeyPart",
    "Layout",
    "Lease",
    "LeaseAcquire",
    "LeaseExtend",
    "LeaseStore",
    "Mode",
    "Remaining",
    "RefillPolicy",
    "Segment",
    "SegmentStore",
    "ShareConsumed",
    "StepPolicy",
    "StoreError",
    "StoreErrorKind",
    "StoreFailure",
    "TagOptions",
    "TagRecord",
    "TailRelease",
    "sub_tag",
]

ID_MAX: Final = 2**63 - 1
"""The greatest id."""

SUB_SEPARATOR: Final = "\x1f"
"""Stands between a tag and its sub-key in the name under which a store keeps the sub-key's numbers."""

KEPT_LEASES: Final = "redis-leases"
"""The tag whose sub-keys are the namespaces of leases that Redis keeps: its numbers are Unix milliseconds."""

KEPT_CLOCK: Final = "redis-clock:"
"""What the sub-keys of any tag begin with whose numbers are milliseconds that were granted to Redis' clock."""

KEPT_FORMATS: Final = "unalike-formats"
"""The tag whose sub-keys are what the formats of tags and snowflakes were first."""

KEPT_FLOOR: Final = f"unalike-new-names{SUB_SEPARATOR}floor"
"""The row whose watermark is the floor of all names that are new in a store."""

_NAME_BYTES_MAX: Final = 128
_FORMAT_ROWS_MAX: Final = 1_000
"""How often a format may be accepted anew."""
_U64_MAX: Final = 2**64 - 1

Mode = Literal["buffered", "ordered"]
"""How callers of a tag are served; bound to the tag in its store."""

StoreFailure = Literal[
    "unavailable",
    "outcome-unknown",
    "tag-unknown",
    "exhausted",
    "workers-exhausted",
    "lease-lost",
    "clock-skew",
    "refused",
]
"""What the component is told: the cases of ``store-error`` in its WIT."""

StoreErrorKind = Literal[
    "unavailable",
    "outcome-unknown",
    "tag-unknown",
    "exhausted",
    "workers-exhausted",
    "lease-lost",
    "clock-skew",
    "refused",
    "tag-exists",
    "tag-invalid",
    "tag-limit",
    "ceiling-reached",
    "quarantined",
    "clock-behind",
    "timestamps-ended",
    "layout-mismatch",
    "format-bound",
    "leases-elsewhere",
    "place-changed",
    "corrupt",
]
"""Why a store gave nothing.

``unavailable``: nothing was done, it may work later. ``outcome-unknown``: it may have been done, but the answer was
lost; whatever was granted is burnt. ``ceiling-reached``, ``quarantined`` and ``clock-behind``: nothing was granted, it
will work later.
``lease-lost``: no lease with this worker and grant id is running. ``leases-elsewhere``: the leases of the namespace are
kept in another place, of which the store has a record. ``clock-skew``: the holder's clock is too far from
the store's. The others last until somebody acts.
"""


@dataclass(frozen=True, slots=True)
class Segment:
    """Numbers ``start``, ``start + stride``, .. below ``end``, granted to one holder for ever."""

    start: int
    """The first number: at least 1."""
    end: int
    """The first number of the same remainder that is not granted; ``end - stride`` is at most 2^63 - 1."""
    stride: int
    """The distance between numbers: 1, or the number of stripes."""
    generation: int
    """Counts deliberate restarts of the tag's numbering."""
    version: int
    """The version of the tag's row after this grant: a release must name it."""


@dataclass(frozen=True, slots=True)
class TailRelease:
    """The unused end of a segment, which its holder gives back."""

    start: int
    """The first number that was not used."""
    version: int
    """The version that came with the newest grant."""


@dataclass(frozen=True, slots=True)
class FixedStep:
    """A segment asks for always this many numbers."""

    step: int
    """1 to 2^63 - 1."""


@dataclass(frozen=True, slots=True)
class AdaptiveStep:
    """How many numbers a segment asks for follows their use."""

    step: int = 1_000
    """The first step."""
    min: int = 100
    """1 or more."""
    max: int = 1_000_000
    """At least ``min``."""
    grow_below_ms: int = 900_000
    """A step that was used within less time doubles."""
    shrink_above_ms: int = 1_800_000
    """A step that lasted longer halves; at least ``grow_below_ms``."""


StepPolicy = Union[FixedStep, AdaptiveStep]
"""How many numbers a segment asks for."""


@dataclass(frozen=True, slots=True)
class ShareConsumed:
    """The next segment is asked for when this share of the current one is used."""

    percent: int
    """0 to 100."""


@dataclass(frozen=True, slots=True)
class Remaining:
    """The next segment is asked for when fewer than this many numbers are left."""

    numbers: int


RefillPolicy = Union[ShareConsumed, Remaining]
"""When the next segment is asked for."""


@dataclass(frozen=True, slots=True)
class TagOptions:
    """What a tag is created with."""

    start: int = 1
    """The first number that is ever granted: 1 to 2^63 - 1."""
    step: StepPolicy = field(default_factory=AdaptiveStep)
    refill: RefillPolicy = field(default_factory=lambda: ShareConsumed(10))
    mode: Mode = "buffered"


@dataclass(frozen=True, slots=True)
class TagRecord:
    """A tag as its store keeps it."""

    tag: str
    options: TagOptions
    watermark: int
    """The greatest number that may have been handed out; ``start - 1`` or more before the first grant."""


@dataclass(frozen=True, slots=True)
class FormatOwner:
    """Whose ids a format shows."""

    kind: Literal["tag", "snowflake"]
    """``tag``: those of a tag, its sub-keys and its periods. ``snowflake``: those of a namespace."""
    name: str
    """The tag or the namespace."""

    @property
    def command(self) -> str:
        """The command that compares the configured format with the bound one, for people to copy."""
        flag = "" if self.kind == "tag" else " --snowflake"
        return f"unalike tags format{flag} -- {shlex.quote(self.name)}"

    def __str__(self) -> str:
        return f"the {self.kind} {self.name!r}"


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A key of a format, of which a store keeps a check value."""

    id: int
    """The key's number: 0 to 255."""
    bits: int
    """The width of what it permutes: 0 to 255."""


FormatPart = Union[Literal["shape"], KeyPart]
"""Something of a format that a store keeps a number of: its shape (template, restart and widths), or a key."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Bit widths, epoch and tick of a snowflake id, as in the component's WIT."""

    timestamp_bits: int
    datacenter_bits: int
    worker_bits: int
    sequence_bits: int
    order: Literal["worker-first", "sequence-first"]
    epoch_ms: int
    """The instant at which tick 0 begins, in Unix milliseconds."""
    tick_ms: int
    """Length of one tick, in milliseconds."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A worker id and the half-open interval of timestamps in which its holder may use it."""

    worker: int
    grant_id: int
    """Minted by the store at each successful acquire, and never used again: 128 bits."""
    not_before_ms: int
    """The first timestamp that may be used, in Unix milliseconds."""
    valid_until_ms: int
    """The first timestamp that may not, in Unix milliseconds."""


@dataclass(frozen=True, slots=True)
class LeaseAcquire:
    """A request for a worker id."""

    namespace: str
    """Which set of worker ids: ids are unique within it."""
    layout: Layout
    """The layout of the ids; binds the namespace at first use."""
    holder: str
    """A stable name of the holder, for preference and display only. Empty: no preference."""
    preferred_worker: Optional[int]
    """A worker that the holder would like to have, when it is free."""
    now_ms: int
    """The holder's clock, in Unix milliseconds."""
    horizon_ms: int
    """How far ahead the lease shall reach."""


@dataclass(frozen=True, slots=True)
class LeaseExtend:
    """A request to prolong a lease."""

    namespace: str
    layout: Layout
    worker: int
    grant_id: int
    now_ms: int
    """The holder's clock, in Unix milliseconds."""
    horizon_ms: int
    """How far ahead the lease shall reach."""


class StoreError(Exception):
    """Why a store gave nothing. The message says what happened, which value, and what to do."""

    def __init__(self, kind: StoreErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind: Final[StoreErrorKind] = kind

    def __reduce__(self) -> tuple[type[StoreError], tuple[StoreErrorKind, str]]:
        return type(self), (self.kind, str(self))

    @property
    def failure(self) -> StoreFailure:
        """What the component is told."""
        kind = self.kind
        if kind == "ceiling-reached" or kind == "quarantined" or kind == "clock-behind":
            return "unavailable"
        if kind == "timestamps-ended":
            return "exhausted"
        if (
            kind == "tag-exists"
            or kind == "tag-invalid"
            or kind == "tag-limit"
            or kind == "layout-mismatch"
            or kind == "format-bound"
            or kind == "leases-elsewhere"
            or kind == "place-changed"
            or kind == "corrupt"
        ):
            return "refused"
        # Whoever makes up a kind says nothing of what was granted.
        return kind if kind in get_args(StoreFailure) else "outcome-unknown"

    @property
    def is_retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.failure not in ("tag-unknown", "exhausted", "refused")

    @property
    def may_have_granted(self) -> bool:
        """Whether a grant may have been made that nobody received."""
        return self.kind == "outcome-unknown"


class SegmentStore(Protocol):
    """Grants intervals of numbers under a tag, each to one holder for ever."""

    def allocate(self, tag: str, count: int, at_least: int) -> Segment:
        """Grants up to ``count`` numbers (1 or more) under ``tag``, none below ``at_least``: fewer perhaps, never none.

        A tag that does not exist is created first, if the store allows that; a sub-key of a tag that exists always is.
        It asks once. A store that cannot know whether a grant was made raises ``outcome-unknown``, and never offers
        that grant again.

        :raises StoreError:
        """
        ...

    def release(self, tag: str, tail: TailRelease) -> bool:
        """Takes numbers back, from ``tail.start`` on, if the tag's row still has ``tail.version``.

        Answers whether it took them.

        :raises StoreError: The caller then leaves a gap.
        """
        ...

    def open_tag(self, tag: str) -> TagRecord:
        """The tag as the store keeps it; created when it does not exist and the store allows that.

        :raises StoreError:
        """
        ...

    def bind_format(self, owner: FormatOwner, part: FormatPart, first: Optional[int]) -> Optional[int]:
        """The number that is bound of a part of a format. Where none is, ``first`` (1 to 2^63 - 1) is from now on.

        One step, also between processes: of two programs that bind at once, both are answered the same number. ``None``
        where nothing is bound and ``first`` is ``None``, and always from a store that keeps no formats. A store without
        this method keeps none, and nothing is compared there.

        :raises StoreError:
        """
        return None

    def identity(self) -> Optional[str]:
        """The random name of the store's data, 32 hexadecimal digits.

        It is the same after a restart and a move, and another one in each store that was begun by itself. ``None`` in
        a store that has none.

        :raises StoreError:
        """
        ...

    def close(self) -> None:
        """Closes the connections. Not needed for safety."""
        ...


class LeaseStore(Protocol):
    """Grants worker ids over intervals of timestamps that never overlap for one worker of one namespace."""

    def acquire(self, request: LeaseAcquire) -> Lease:
        """Grants a worker. Never idempotent: each success is an interval that was never granted before.

        :raises StoreError:
        """
        ...

    def extend(self, request: LeaseExtend) -> Lease:
        """Moves the end of a running lease to ``horizon_ms`` beyond the store's present, never back.

        :raises StoreError: ``lease-lost`` when (worker, grant id) is not the worker's newest lease, its end is fixed,
            or its end has passed and the store has no time that joins it.
        """
        ...

    def release_lease(self, namespace: str, worker: int, grant_id: int, end_ms: int) -> bool:
        """Ends a lease at ``end_ms``, the end of the last tick that its holder used. Answers whether it did.

        :raises StoreError: The lease then runs out by itself.
        """
        ...

    def lease_identity(self) -> Optional[str]:
        """As :meth:`SegmentStore.identity`, of the leases."""
        ...

    def close(self) -> None:
        """Closes the connections. Not needed for safety."""
        ...


def split_tag(name: str) -> tuple[str, Optional[str]]:
    """A tag, and the sub-key in its name if there is one."""
    tag, separator, sub = name.partition(SUB_SEPARATOR)
    return tag, sub if separator else None


def shown(name: str) -> str:
    """A name for people: the tag, and its sub-key apart."""
    tag, sub = split_tag(name)
    return f"{tag!r}" if sub is None else f"{tag!r} (sub-key {sub!r})"


def sub_tag(tag: str, sub: str) -> str:
    """The name under which a tag's numbers for one sub-key are kept: a row of its own, with the tag's options.

    :raises StoreError: ``tag-invalid``
    """
    validate_tag(tag)
    if not isinstance(sub, str):
        _refuse(tag, f"its sub-key is {sub!r}, and must be a string")
    if not sub:
        _refuse(tag, "its sub-key is empty")
    if SUB_SEPARATOR in tag:
        _refuse(tag, "its sub-key holds a control character")
    fault = _fault_of_part(sub)
    _refuse(tag, fault and fault.replace("it", "its sub-key", 1))
    name = f"{tag}{SUB_SEPARATOR}{sub}"
    length = len(name.encode())
    if length > _NAME_BYTES_MAX:
        _refuse(tag, f"with its sub-key it has {length - 1} bytes, {_NAME_BYTES_MAX - 1} at most are allowed")
    return name


def validate_tag(name: str) -> None:
    """Checks a tag's name, or that of a sub-key.

    :raises StoreError: ``tag-invalid``
    """
    if not isinstance(name, str):
        raise StoreError("tag-invalid", f"a tag is a string, not {type(name).__name__}")
    for part in split_tag(name):
        if part is not None:
            _refuse(name, _fault_of_part(part))
    length = len(name.encode())
    if length > _NAME_BYTES_MAX:
        _refuse(name, f"its name begins so and has {length} bytes, and a name has 1 to {_NAME_BYTES_MAX} bytes")


def validate_new_tag(name: str) -> None:
    """Checks the name of a tag that is about to be created.

    A space at either end is a slip of whoever asks, and would begin at 1 what was meant to go on. Tags that exist are
    used whatever their names are, and so are new sub-keys of theirs.

    :raises StoreError: ``tag-invalid``
    """
    validate_tag(name)
    tag, sub = split_tag(name)
    what, part = ("its name", tag) if sub is None else (f"its sub-key {sub!r}", sub)
    if part.strip() != part:
        _refuse(tag, f"{what} has a space at an end, and no new one may: leave the space out")


def format_name(owner: FormatOwner, part: FormatPart, row: int) -> str:
    """The name of a row in which a part of a format is bound; the rows of a part are numbered from 1.

    A name that is too long is shortened. Two that have one row would be refused each other's formats, and nothing else.
    """
    of = f"key {part.id} of {part.bits} bits" if isinstance(part, KeyPart) else part
    begin = f"{owner.kind} {row} {of}:"
    most = _NAME_BYTES_MAX - len(KEPT_FORMATS) - 1 - len(begin)
    # No new name may end in a space.
    fits = len(owner.name.encode()) <= most and owner.name.rstrip() == owner.name
    return sub_tag(KEPT_FORMATS, f"{begin}{owner.name if fits else _shortened(owner.name, most)}")


def _shortened(name: str, most: int) -> str:
    """The beginning of a name and a hash of it, so many bytes together."""
    encoded = name.encode()
    end = f"~{_fnv1a(encoded):016x}"
    # What is left of a character at the end goes, too.
    return encoded[: most - len(end)].decode(errors="ignore") + end


def _fnv1a(name: bytes) -> int:
    digest = 0xCBF2_9CE4_8422_2325
    for byte in name:
        digest = (digest ^ byte) * 0x0100_0000_01B3 % 2**64
    return digest


def bind_in(store: SegmentStore, owner: FormatOwner, part: FormatPart, first: Optional[int]) -> Optional[int]:
    """:meth:`SegmentStore.bind_format` of any store: one without the method keeps no formats.

    :raises StoreError:
    """
    bind: Optional[Callable[[FormatOwner, FormatPart, Optional[int]], Optional[int]]]
    bind = getattr(store, "bind_format", None)
    return None if bind is None else bind(owner, part, first)


def bind_in_tags(
    owner: FormatOwner,
    part: FormatPart,
    first: Optional[int],
    start_of: Callable[[str], Optional[int]],
    create: Callable[[str, TagOptions], bool],
) -> Optional[int]:
    """:meth:`SegmentStore.bind_format` of a store that keeps the numbers as rows among its tags.

    A row's start is the number, and never changes. An operator who accepts another format adds a row behind the last
    one: the last one counts.

    :param start_of: Answers the start of a tag, or ``None`` if there is no such tag.
    :param create: Creates a tag, and answers whether there was none.
    :raises StoreError:
    """
    validate_binding(owner, part, first)
    bound: Optional[int] = None
    for row in range(1, _FORMAT_ROWS_MAX + 1):
        name = format_name(owner, part, row)
        start = start_of(name)
        if start is None:
            if first is None or bound is not None:
                return bound
            if create(name, TagOptions(start=first)):
                return first
            # Somebody else was quicker.
            start = start_of(name)
        bound = start
    return bound


def is_kept_time(name: str) -> bool:
    """Whether the numbers under this name are milliseconds, and no ids."""
    tag, sub = split_tag(name)
    return _is_named(tag, KEPT_LEASES) or (sub is not None and _ascii_lower(sub.strip()).startswith(KEPT_CLOCK))


def _is_kept_format(name: str) -> bool:
    return _is_named(split_tag(name)[0], KEPT_FORMATS)


def is_kept(name: str) -> bool:
    """Whether the product keeps something for itself under this name. Capitals and spaces at the ends do not matter."""
    return is_kept_time(name) or _is_kept_format(name) or _is_named(split_tag(name)[0], split_tag(KEPT_FLOOR)[0])


def validate_public(name: str) -> None:
    """Refuses names under which the product keeps something for itself: for every name that a caller gives.

    :raises StoreError: ``tag-invalid``
    """
    if is_kept(name):
        what = "the floor of new names"
        if is_kept_time(name):
            what = "time that is granted to leases and clocks"
        elif _is_kept_format(name):
            what = "what the ids of tags look like"
        _refuse(split_tag(name)[0], f"{what} is kept under this name: use another")


def validate_allocate(tag: str, count: int, at_least: int) -> None:
    """Checks what :meth:`SegmentStore.allocate` is asked.

    :raises StoreError:
    """
    validate_tag(tag)
    if not _is_in(count, 1, _U64_MAX) or not _is_in(at_least, 0, _U64_MAX):
        message = f"{count!r} numbers from {at_least!r} on were asked for under {shown(tag)}: ask for 1 or more"
        raise StoreError("refused", message)
    if at_least > ID_MAX:
        raise StoreError("exhausted", f"the tag {shown(tag)} has no numbers from {at_least} on: {ID_MAX} is the last")


def validate_release(tag: str, tail: TailRelease) -> None:
    """Checks what :meth:`SegmentStore.release` is asked. A tail that is out of range is nobody's.

    :raises StoreError:
    """
    validate_tag(tag)
    if not isinstance(tail, TailRelease):
        raise StoreError("refused", f"the tail of {shown(tag)} is {tail!r}, it must be a TailRelease(start, version)")


def validate_binding(owner: FormatOwner, part: FormatPart, first: Optional[int]) -> None:
    """Checks what :meth:`SegmentStore.bind_format` is asked.

    :raises StoreError: ``tag-invalid``, ``refused``
    """
    if not isinstance(owner, FormatOwner) or owner.kind not in ("tag", "snowflake"):
        raise StoreError("refused", f"the owner of a format is {owner!r}, it must be FormatOwner('tag', 'order'), say")
    validate_tag(owner.name)
    if SUB_SEPARATOR in owner.name:
        _refuse(split_tag(owner.name)[0], "a format is bound to it, and not to a sub-key: leave the sub-key out")
    is_key = isinstance(part, KeyPart) and _is_in(part.id, 0, 255) and _is_in(part.bits, 0, 255)
    if part != "shape" and not is_key:
        raise StoreError("refused", f"the part of a format is {part!r}, it must be 'shape' or KeyPart(1, 24), say")
    if first is not None and not _is_in(first, 1, ID_MAX):
        raise StoreError("refused", f"{first!r} was to be bound of a format, it must be 1 to 2^63 - 1")


def validate_options(tag: str, options: TagOptions) -> None:
    """Checks the options that a tag is created with, and its name.

    :raises StoreError: ``tag-invalid``
    """
    validate_tag(tag)
    if not isinstance(options, TagOptions):
        _refuse(tag, f"its options are of the type {type(options).__name__}, they must be TagOptions(..)")
    if not _is_in(options.start, 1, ID_MAX):
        _refuse(tag, f"its start is {options.start!r}, it must be 1 to 2^63 - 1")
    if options.mode not in ("buffered", "ordered"):
        _refuse(tag, f"its mode is {options.mode!r}, it must be 'buffered' or 'ordered'")
    _refuse(tag, _fault_of_step(options.step))
    _refuse(tag, _fault_of_refill(options.refill))


def _fault_of_step(step: StepPolicy) -> Optional[str]:
    if isinstance(step, FixedStep):
        return None if _is_in(step.step, 1, ID_MAX) else f"its step is {step.step!r}, it must be 1 to 2^63 - 1"
    if not isinstance(step, AdaptiveStep):
        return f"its step is {step!r}, it must be FixedStep(1_000) or an AdaptiveStep, say"
    has_bounds = _is_in(step.min, 1, ID_MAX) and _is_in(step.max, step.min, ID_MAX)
    if not has_bounds or not _is_in(step.step, step.min, step.max):
        bounds = f"its step is {step.step!r} within {step.min!r} to {step.max!r}"
        return f"{bounds}: it must be 1 <= min <= step <= max <= 2^63 - 1"
    if not (_is_in(step.shrink_above_ms, 0, _U64_MAX) and _is_in(step.grow_below_ms, 0, step.shrink_above_ms)):
        durations = f"doubles below {step.grow_below_ms!r} ms and halves above {step.shrink_above_ms!r} ms"
        return f"its step {durations}: the second must not be less"
    return None


def _fault_of_refill(refill: RefillPolicy) -> Optional[str]:
    if isinstance(refill, ShareConsumed):
        fits = _is_in(refill.percent, 0, 100)
        return None if fits else f"it is refilled at {refill.percent!r} percent, it must be 0 to 100"
    if not isinstance(refill, Remaining):
        return f"its refill is {refill!r}, it must be ShareConsumed(10) or Remaining(500), say"
    fits = _is_in(refill.numbers, 0, _U64_MAX)
    return None if fits else f"it is refilled below {refill.numbers!r} numbers: they do not fit 64 bits"


def _fault_of_part(part: str) -> Optional[str]:
    if not part:
        return f"it is empty, and a name has 1 to {_NAME_BYTES_MAX} bytes"
    categories = {unicodedata.category(character) for character in part}
    if "Cc" in categories:
        return "it holds a control character"
    return "it is not valid Unicode" if "Cs" in categories else None


def _refuse(name: str, fault: Optional[str]) -> None:
    if fault is not None:
        raise StoreError("tag-invalid", f"the tag {shown(name[:32])} is not valid: {fault}")


def _is_in(number: object, least: int, greatest: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and least <= number <= greatest


def is_u64(value: object) -> bool:
    """Whether it is a whole number of at most 64 bits."""
    return _is_in(value, 0, _U64_MAX)


def _is_named(tag: str, kept: str) -> bool:
    return _ascii_lower(tag.strip()) == kept


def _ascii_lower(text: str) -> str:
    return "".join(character.lower() if character.isascii() else character for character in text)
