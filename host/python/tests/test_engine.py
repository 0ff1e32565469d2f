"""The machine code in the user's cache directory: whole, the user's own, or not used."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from unalike import _engine

SOURCE = Path(__file__).parents[1] / "src"

PROGRAM = """
import wasmtime.component
from unalike import _engine, formats
compiled = []
stock = _engine.Component
class Component(stock):
    def __init__(self, engine, code):
        compiled.append(1)
        super().__init__(engine, code)
_engine.Component = Component
assert formats.decode(formats.encode(7, "uuid"), "uuid") == 7
print(len(compiled))
"""


def compiled(cache: Path) -> int:
    """How many components a new process compiled."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"XDG_CACHE_HOME": str(cache), "HOME": str(cache), "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout)


def kept(cache: Path) -> list[Path]:
    return sorted((cache / "unalike").glob("*"))


if sys.platform != "linux":
    pytest.skip("the directory has another name", allow_module_level=True)


def test_compiled_once(tmp_path: Path) -> None:
    assert compiled(tmp_path) == 1
    assert compiled(tmp_path) == 0
    (file,) = kept(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "unalike").stat().st_mode) == 0o700


def flip(at: int) -> Callable[[Path], None]:
    def damage(file: Path) -> None:
        content = bytearray(file.read_bytes())
        content[at] ^= 1
        file.write_bytes(content)

    return damage


DAMAGES: dict[str, Callable[[Path], object]] = {
    "the first byte": flip(0),
    "the digest": flip(30),
    "the machine code": flip(-2_000),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-1]),
    "empty": lambda file: file.write_bytes(b""),
    "of another program": lambda file: file.write_bytes(b"#!/bin/sh"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_compiled_again(tmp_path: Path, damage: str) -> None:
    compiled(tmp_path)
    (file,) = kept(tmp_path)
    DAMAGES[damage](file)
    assert compiled(tmp_path) == 1
    assert compiled(tmp_path) == 0, "and written again"
    assert len(kept(tmp_path)) == 1, "nothing is left behind"


def test_a_whole_file_that_the_engine_refuses(tmp_path: Path) -> None:
    """Of another machine or version, under the right name."""
    compiled(tmp_path)
    (file,) = kept(tmp_path)
    body = b"\x7fELF" + bytes(5_000)
    file.write_bytes(_engine._MAGIC + hashlib.sha256(body).digest() + body)
    assert compiled(tmp_path) == 1 and compiled(tmp_path) == 0


def test_what_others_may_write_is_not_used(tmp_path: Path) -> None:
    compiled(tmp_path)
    (file,) = kept(tmp_path)
    directory = tmp_path / "unalike"
    file.chmod(0o620)
    assert compiled(tmp_path) == 1
    assert stat.S_IMODE(file.stat().st_mode) == 0o600, "another file is in its place"
    directory.chmod(0o777)
    before = file.stat().st_mtime_ns
    assert compiled(tmp_path) == 1 and file.stat().st_mtime_ns == before, "neither read nor written"
    directory.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(file, 12_345, -1)
        assert compiled(tmp_path) == 1
        os.chown(directory, 12_345, -1)
        assert compiled(tmp_path) == 1


def test_links_are_not_followed(tmp_path: Path) -> None:
    compiled(tmp_path)
    (file,) = kept(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    assert compiled(tmp_path) == 1
    directory = tmp_path / "unalike"
    directory.rename(tmp_path / "moved")
    directory.symlink_to(tmp_path / "moved")
    assert compiled(tmp_path) == 1


def test_no_directory_is_needed(tmp_path: Path) -> None:
    (tmp_path / "unalike").write_text("a file")
    assert compiled(tmp_path) == 1
    assert compiled(Path("/proc/none")) == 1
