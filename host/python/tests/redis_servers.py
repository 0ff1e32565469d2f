"""Private Redis servers, and a durable store that can be switched off."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional, TypeVar

import redis

from mariadb import free_port
from servers import LIMIT_S, until

from unalike.store import Segment, StoreError, TagOptions, TagRecord, TailRelease

T = TypeVar("T")


def eventually(request: Callable[[], T], *kinds: str) -> T:
    """Repeats until it works: for what fails for a while only, and for errors of these kinds."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            return request()
        except StoreError as error:
            if not (error.is_retryable or error.kind in kinds) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


class RedisProcess:
    """A redis-server of a test's own."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.port = free_port()
        self._command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder)]
        self._command += ["--save", "", *settings]
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)

        def answers() -> bool:
            assert self.process.poll() is None, "redis-server has ended"
            try:
                return bool(self.ask("PING"))
            except redis.AuthenticationError:
                return True
            except redis.RedisError:
                return False

        until(answers)

    def ask(self, *command: str) -> Any:
        """Asks on a connection of its own."""
        with redis.Redis(port=self.port, decode_responses=True) as client:
            return client.execute_command(*command)

    def kill(self) -> None:
        """kill -9"""
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()


class Switched:
    """A durable store that counts what it grants, and can be down."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.is_down = False
        self.granted: list[Segment] = []

    def _asked(self) -> Any:
        if self.is_down:
            raise StoreError("unavailable", "the durable store is switched off")
        return self.store

    def allocate(self, tag: str, count: int, at_least: int) -> Segment:
        segment: Segment = self._asked().allocate(tag, count, at_least)
        self.granted.append(segment)
        return segment

    def release(self, tag: str, tail: TailRelease) -> bool:
        return bool(self._asked().release(tag, tail))

    def open_tag(self, tag: str) -> TagRecord:
        record: TagRecord = self._asked().open_tag(tag)
        return record

    def create_tag(self, tag: str, options: TagOptions) -> TagRecord:
        record: TagRecord = self._asked().create_tag(tag, options)
        return record

    def identity(self) -> Optional[str]:
        identity: Optional[str] = self._asked().identity()
        return identity

    def leave_leases(self, namespace: str) -> None:
        self._asked().leave_leases(namespace)

    def close(self) -> None:
        self.store.close()
