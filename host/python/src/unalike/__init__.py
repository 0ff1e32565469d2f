"""Distributed ids, no two alike: the whole algorithm is one small WebAssembly component, and stores give it grants.

>>> from unalike import Ids
>>> from unalike.memory import MemoryStore
>>> with Ids(segments=MemoryStore()) as ids:
...     ids.sequence("order").next()
1
"""

from . import formats
from .aio import AsyncFormatted, AsyncIds, AsyncSequence, AsyncSnowflake
from .batch import Batch
from .errors import IdsError, IdsErrorKind
from .formatted import Formatted
from .ids import Ids
from .layouts import LAYOUTS
from .sequence import Sequence, SequenceStatus
from .snowflake import Clock, Snowflake, SnowflakeStatus, Spread
from .store import (
    ID_MAX,
    AdaptiveStep,
    FixedStep,
    FormatOwner,
    FormatPart,
    KeyPart,
    Layout,
    Lease,
    LeaseAcquire,
    LeaseExtend,
    LeaseStore,
    Mode,
    RefillPolicy,
    Remaining,
    Segment,
    SegmentStore,
    ShareConsumed,
    StepPolicy,
    StoreError,
    StoreErrorKind,
    StoreFailure,
    TagOptions,
    TagRecord,
    TailRelease,
)

__all__ = [
    "ID_MAX",
    "LAYOUTS",
    "AdaptiveStep",
    "AsyncFormatted",
    "AsyncIds",
    "AsyncSequence",
    "AsyncSnowflake",
    "Batch",
    "Clock",
    "FixedStep",
    "FormatOwner",
    "FormatPart",
    "Formatted",
    "Ids",
    "IdsError",
    "IdsErrorKind",
    "KeyPart",
    "Layout",
    "Lease",
    "LeaseAcquire",
    "LeaseExtend",
    "LeaseStore",
    "Mode",
    "RefillPolicy",
    "Remaining",
    "Segment",
    "SegmentStore",
    "Sequence",
    "SequenceStatus",
    "ShareConsumed",
    "Snowflake",
    "SnowflakeStatus",
    "Spread",
    "StepPolicy",
    "StoreError",
    "StoreErrorKind",
    "StoreFailure",
    "TagOptions",
    "TagRecord",
    "TailRelease",
    "formats",
]
