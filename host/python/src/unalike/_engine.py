"""The engine, and the machine code of the components in it.

Compiling takes some 0.1 s, so what was compiled is kept in the user's cache directory. Whoever can write there can
have any code run in this process: the directory and its files must belong to the user and be writable for nobody else,
else they are not used. Nothing of this is needed: without a directory every process compiles for itself.
"""

from __future__ import annotations

import hashlib
import os
import platform
import stat
import sys
import tempfile
import threading
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Optional

import wasmtime
from wasmtime import _ffi as ffi
from wasmtime.component import Component

from ._inside import in_component
from ._process import ProcessLock, current
from .errors import IdsError, caused

__all__ = ["BUILD", "CORE", "FORMATS", "component", "engine"]

CORE: Final = "unalike.wasm"
FORMATS: Final = "unalike-formats.wasm"

_MAGIC: Final = b"unalike machine code 1\n"
_DIGEST_BYTES: Final = 32
_FORK_WAITS_S: Final = 30.0

BUILD: Final = ProcessLock()
"""Held while the engine works on code: a process forks in between, since the engine's own locks do not survive it."""

_looked_in = 0
"""The mark of the process that looked at what it inherited."""
_torn: list[Any] = []
_engine: Optional[wasmtime.Engine] = None
_components: dict[str, Component] = {}


def engine() -> wasmtime.Engine:
    """The engine of this process. A child may use that of its parent: what belongs to nobody can be shared."""
    return in_component(BUILD.get(), _engine_here)


def _engine_here() -> wasmtime.Engine:
    global _engine
    if _engine is None:
        made = _new_engine()
        # A finalizer that ran meanwhile may have needed one, too.
        if _engine is None:
            _engine = made
    return _engine


def component(name: str) -> Component:
    """A component, compiled at first use.

    :raises IdsError: ``component``
    """

    def here() -> Component:
        _forget_what_is_torn()
        found = _components.get(name)
        if found is None:
            found = _components[name] = _load(name, wasm(name))
        return found

    return in_component(BUILD.get(), here)


def wasm(name: str) -> bytes:
    """The bytes of a component.

    :raises IdsError: ``component``
    """
    path = Path(__file__).parent / "wasm" / name
    try:
        return path.read_bytes()
    except OSError as error:
        make = "in a clone, python host/python/build_components.py makes it"
        message = f"the component {path} cannot be read: {error}; {make}"
        raise caused(IdsError("component", message), error) from None


def _forget_what_is_torn() -> None:
    """An engine that a thread of the parent worked on, in a child that was born without anybody waiting for it."""
    global _engine, _looked_in
    mark = current()
    if _looked_in != mark:
        _looked_in = mark
        if BUILD.was_held():
            _torn.extend([_engine, dict(_components)])
            _engine = None
            _components.clear()


def _new_engine() -> wasmtime.Engine:
    config = wasmtime.Config()
    # A child of a process that compiled in parallel would wait for threads that it does not have.
    config.parallel_compilation = False
    # Synchronous calls cost a third of what they cost with it.
    ffi.wasmtime_config_concurrency_support_set(config.ptr(), False)
    return wasmtime.Engine(config)


_SETTINGS: Final = "parallel_compilation=false concurrency_support=false"


def _load(name: str, code: bytes) -> Component:
    built = engine()
    place = _Place.of(code)
    if place is not None:
        kept = place.read()
        if kept is not None:
            try:
                return Component.deserialize(built, kept)
            except wasmtime.WasmtimeError:
                pass  # of another machine, say
    try:
        compiled = Component(built, code)
    except wasmtime.WasmtimeError as error:
        raise caused(IdsError("component", f"the component {name} cannot be compiled: {error}"), error) from None
    if place is not None:
        place.write(bytes(compiled.serialize()))
    return compiled


class _Place:
    """Where the machine code of one component is kept for one engine."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def of(cls, code: bytes) -> Optional[_Place]:
        directory = cache_directory()
        if directory is None:
            return None
        try:
            version = metadata.version("wasmtime")
        except metadata.PackageNotFoundError:
            return None  # packed in some other way: code of another version must not be loaded
        parts = (version, _SETTINGS, sys.platform, platform.machine())
        key = hashlib.sha256("\0".join(parts).encode() + b"\0" + hashlib.sha256(code).digest()).hexdigest()
        return cls(directory / f"{key}.machine-code")

    def read(self) -> Optional[bytes]:
        """What was written here, if it is whole and this user's own."""
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        try:
            if not _is_own(os.lstat(self._path.parent), stat.S_ISDIR):
                return None
            descriptor = os.open(self._path, flags)
            with open(descriptor, "rb") as file:
                if not _is_own(os.fstat(descriptor), stat.S_ISREG):
                    return None
                content = file.read()
        except OSError:
            return None
        head = len(_MAGIC) + _DIGEST_BYTES
        digest, body = content[len(_MAGIC) : head], content[head:]
        if content[: len(_MAGIC)] != _MAGIC or hashlib.sha256(body).digest() != digest:
            return None
        return body

    def write(self, body: bytes) -> None:
        """Keeps it, all at once: whoever reads meanwhile sees the old file or this one."""
        directory = self._path.parent
        temporary = None
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_own(os.lstat(directory), stat.S_ISDIR):
                return
            descriptor, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=directory)
            with open(descriptor, "wb") as file:
                file.write(_MAGIC + hashlib.sha256(body).digest() + body)
            os.replace(temporary, self._path)
            temporary = None
        except OSError:
            pass
        finally:
            if temporary is not None:
                try:
                    os.unlink(temporary)
                except OSError:
                    pass


def cache_directory() -> Optional[Path]:
    """Where compiled components are kept; ``None`` for a user without a home."""
    try:
        if sys.platform == "win32":
            base = os.environ.get("LOCALAPPDATA")
            return Path(base) / "unalike" / "Cache" if base else None
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "unalike"
        base = os.environ.get("XDG_CACHE_HOME", "")
        return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "unalike"
    except (RuntimeError, KeyError, OSError):
        return None


def _is_own(found: os.stat_result, is_kind: Any) -> bool:
    """Whether nobody but this user may have written it."""
    if not is_kind(found.st_mode):
        return False
    if not hasattr(os, "geteuid"):
        return True
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


class _Forking:
    """Holds the lock while the process forks. A thread that does not let it go is waited for so long and no longer."""

    def __init__(self) -> None:
        self._held: dict[int, Any] = {}

    def before(self) -> None:
        lock: Any = BUILD.get()
        if lock.acquire(timeout=_FORK_WAITS_S):
            self._held[threading.get_ident()] = lock

    def after(self) -> None:
        lock = self._held.pop(threading.get_ident(), None)
        if lock is not None:
            lock.release()


_forking = _Forking()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_forking.before, after_in_parent=_forking.after)
