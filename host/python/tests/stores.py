"""Stores of the tests: a file, which processes share, and stores that do what they are told."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

from unalike import Lease, LeaseAcquire, LeaseExtend, Segment, StoreError, TagOptions, TagRecord, TailRelease
from unalike._process import ProcessLock
from unalike.memory import MemoryStore


_LOCK = ProcessLock()


class FileStore:
    """Numbers in a file that processes share, one at a time.

    Not SQLite: its mutexes do not survive a fork that happens while another thread is inside of it.
    """

    def __init__(self, path: Path, mode: Any = "buffered", step: Any = None) -> None:
        self._path = str(path)
        self._options = TagOptions(mode=mode) if step is None else TagOptions(mode=mode, step=step)
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT))

    def _change(self, change: Callable[[dict[str, Any]], Any]) -> Any:
        # Locks of fcntl belong to the process, and neither to its children nor to one thread.
        with _LOCK.get():
            descriptor = os.open(self._path, os.O_RDWR)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX)
                content = json.loads(os.pread(descriptor, 1 << 20, 0) or b"{}")
                answer = change(content)
                written = json.dumps(content).encode().ljust(4_096)
                os.pwrite(descriptor, written, 0)
                return answer
            finally:
                os.close(descriptor)

    def allocate(self, tag: str, count: int, at_least: int) -> Segment:
        def change(content: dict[str, Any]) -> Segment:
            end, version = content.get(tag, [1, 0])
            start = max(end, at_least)
            content[tag] = [start + count, version + 1]
            return Segment(start, start + count, 1, 0, version + 1)

        segment: Segment = self._change(change)
        return segment

    def release(self, tag: str, tail: TailRelease) -> bool:
        def change(content: dict[str, Any]) -> bool:
            end, version = content[tag]
            if version != tail.version or tail.start > end:
                return False
            content[tag] = [tail.start, version + 1]
            return True

        taken: bool = self._change(change)
        return taken

    def end(self, tag: str) -> int:
        end: int = self._change(lambda content: content[tag][0])
        return end

    def open_tag(self, tag: str) -> TagRecord:
        return TagRecord(tag, self._options, self._options.start - 1)

    def identity(self) -> Optional[str]:
        return None

    def acquire(self, request: LeaseAcquire) -> Lease:
        def change(content: dict[str, Any]) -> int:
            worker: int = content.get("worker", 0)
            content["worker"] = worker + 1
            return worker

        worker = self._change(change)
        return Lease(worker, os.getpid() << 32 | worker, request.now_ms, request.now_ms + request.horizon_ms)

    def extend(self, request: LeaseExtend) -> Lease:
        return Lease(request.worker, request.grant_id, 0, request.now_ms + request.horizon_ms)

    def release_lease(self, namespace: str, worker: int, grant_id: int, end_ms: int) -> bool:
        return True

    def lease_identity(self) -> Optional[str]:
        return None

    def close(self) -> None:
        pass


class Gated(MemoryStore):
    """A store in memory that calls something before each grant, and lets it fail."""

    def __init__(self, before: Callable[[str], None] = lambda what: None, **options: Any) -> None:
        super().__init__(**options)
        self.before = before
        self.asked = 0

    def allocate(self, tag: str, count: int, at_least: int) -> Segment:
        self.asked += 1
        self.before("allocate")
        return super().allocate(tag, count, at_least)

    def acquire(self, request: LeaseAcquire) -> Lease:
        self.before("acquire")
        return super().acquire(request)

    def extend(self, request: LeaseExtend) -> Lease:
        self.before("extend")
        return super().extend(request)


class Forgetful(MemoryStore):
    """Grants from 1 again when it is told to, as a store that lost its data."""

    forgot = False

    def allocate(self, tag: str, count: int, at_least: int) -> Segment:
        segment = super().allocate(tag, count, at_least)
        return Segment(1, 1 + count, 1, 0, segment.version) if self.forgot else segment


def failing(kind: Any, message: str = "said the test") -> Callable[[str], None]:
    def fail(what: str) -> None:
        raise StoreError(kind, f"{what}: {message}")

    return fail
