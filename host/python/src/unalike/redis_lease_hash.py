"""The hash of one lease namespace in Redis: what it means, and how it is written.

What cannot be read in exactly one way is damaged, and nothing is done with it.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final, Mapping, Optional

from .lease_rules import NamespaceBinding, layout_text, worker_max
from .redis_server import Reply
from .store import Lease

__all__ = ["FIELDS", "MS_MAX", "LeaseHash", "LeaseRecord", "NamespaceView", "Valid", "Worker"]

MS_MAX: Final = 2**53 - 1
"""Lua counts exactly up to here."""

FIELDS: Final = ("generation", "incarnation", "binding", "bound_ms", "begun_by")
"""All fields but those of workers and claims."""

_WORKER: Final = "worker:"
_HOLDER_BYTES_MAX: Final = 128


@dataclass(frozen=True)
class LeaseRecord:
    """The newest lease of a worker."""

    lease: Lease
    holder: str
    acquired_ms: int
    is_final: bool
    """It is neither extended nor released any more."""


@dataclass(frozen=True)
class Worker:
    """A worker's newest lease, and how the hash has it."""

    record: LeaseRecord
    text: str


@dataclass(frozen=True)
class LeaseHash:
    """What the hash says."""

    generation: str
    incarnation: str
    """Whose leases these are; empty before the first."""
    binding: Optional[NamespaceBinding]
    """``None`` before the first use."""
    bound_ms: Optional[int]
    """A durable store grants the time up to here, in Unix milliseconds; ``None`` where none does."""
    workers: Mapping[int, Worker]
    """Of those that were looked at, by number."""

    def running(self, worker: int, grant_id: int) -> Optional[Worker]:
        """The worker's lease, if it runs under this grant id and may be extended and released."""
        found = self.workers.get(worker)
        if found is None or found.record.lease.grant_id != grant_id or found.record.is_final:
            return None
        return found


@dataclass(frozen=True)
class Valid:
    """A namespace whose leases are this server's."""

    hash: LeaseHash
    binding: NamespaceBinding
    bound_ms: int


@dataclass(frozen=True)
class NamespaceView:
    """What a look at a namespace saw."""

    here: str
    """The server's incarnation."""
    now_ms: int
    """The server's clock."""
    hash: Optional[LeaseHash]
    """``None`` where there is no hash."""

    def valid(self) -> Optional[Valid]:
        """What this server granted; ``None`` where it granted nothing, or the leases are another one's."""
        hash = self.hash
        if hash is None or hash.incarnation != self.here or hash.binding is None or hash.bound_ms is None:
            return None
        return Valid(hash, hash.binding, hash.bound_ms)


def read_namespace(reply: Reply) -> NamespaceView:
    """
    :raises StoreError: ``corrupt`` for a field that is not as it should be.
    """
    here, now_ms = reply.text(), reply.number()
    fields = reply.pairs()
    try:
        return NamespaceView(here, now_ms, read_hash(fields) if fields else None)
    except ValueError as error:
        raise reply.damaged(str(error)) from None


def worker_field(worker: int) -> str:
    """The name of a worker's field."""
    return f"{_WORKER}{worker}"


def write_worker(record: LeaseRecord) -> str:
    lease = record.lease
    times = f"{lease.not_before_ms} {lease.valid_until_ms} {record.acquired_ms}"
    return f"{lease.grant_id:032x} {times} {int(record.is_final)} {record.holder}"


def read_worker(worker: int, text: str) -> Optional[LeaseRecord]:
    parts = re.fullmatch(r"([0-9a-f]{32}) ([0-9]+) ([0-9]+) ([0-9]+) ([01]) (.*)", text, re.DOTALL)
    if parts is None:
        return None
    not_before_ms, valid_until_ms, acquired_ms = _read_ms(parts[2]), _read_ms(parts[3]), _read_ms(parts[4])
    if not_before_ms is None or valid_until_ms is None or acquired_ms is None or not_before_ms > valid_until_ms:
        return None
    holder = parts[6]
    if len(holder.encode()) > _HOLDER_BYTES_MAX or any(unicodedata.category(letter) == "Cc" for letter in holder):
        return None
    lease = Lease(worker, int(parts[1], 16), not_before_ms, valid_until_ms)
    return LeaseRecord(lease, holder, acquired_ms, parts[5] == "1")


def write_binding(binding: NamespaceBinding) -> str:
    return " ".join(f"{name}={figure}" for name, figure in binding.figures().items())


def read_hash(fields: Mapping[str, str]) -> LeaseHash:
    """
    :raises ValueError: saying what is wrong.
    """
    workers: dict[int, Worker] = {}
    for name, text in fields.items():
        if name.startswith(_WORKER):
            number = name[len(_WORKER) :]
            worker = int(number) if re.fullmatch(r"0|[1-9][0-9]{0,9}", number) else -1
            record = read_worker(worker, text) if 0 <= worker < 2**32 else None
            if record is None:
                raise ValueError(f"the field {name!r} is {text!r}, no lease")
            workers[worker] = Worker(record, text)

    def field(name: str) -> str:
        if name not in fields:
            raise ValueError(f"the field {name} is missing")
        return fields[name]

    generation, incarnation = field("generation"), field("incarnation")
    bound = fields.get("bound_ms")
    if (bound is None) == ("begun_by" not in fields):
        raise ValueError("there must be one of the fields bound_ms and begun_by")
    bound_ms = None if bound is None else _read_ms(bound)
    if bound is not None and bound_ms is None:
        raise ValueError(f"the field bound_ms is {bound!r}, no time")
    # Where the durable store was asked for time, and none has come yet, there is no binding.
    binding = _read_binding(field("binding")) if "binding" in fields or incarnation else None
    if binding is not None and workers and max(workers) > worker_max(binding.layout):
        layout = layout_text(binding.layout)
        raise ValueError(f"the field {worker_field(max(workers))} is of no worker of the layout {layout}")
    return LeaseHash(generation, incarnation, binding, bound_ms, dict(sorted(workers.items())))


def _read_binding(text: str) -> NamespaceBinding:
    figures: dict[str, int] = {}
    for part in text.split(" "):
        name, _, figure_text = part.partition("=")
        number = _read_ms(figure_text)
        if number is not None:
            figures[name] = number

    def figure(name: str) -> int:
        if name not in figures:
            raise ValueError(f"{name} is missing or no number")
        return figures[name]

    try:
        binding = NamespaceBinding.read(figure)
    except ValueError as error:
        raise ValueError(f"the field binding is {text!r}: {error}") from None
    if write_binding(binding) != text:
        raise ValueError(f"the field binding is {text!r}: there is something else")
    return binding


def _read_ms(text: str) -> Optional[int]:
    """A number that Lua counts exactly, written in the one way."""
    number = int(text) if re.fullmatch(r"0|[1-9][0-9]{0,15}", text) else -1
    return number if 0 <= number <= MS_MAX else None
