"""Puts what is not written in Python into the package: the library of the Rust host, and the licences.

``python host/python/build_package.py`` does it in a clone, for tests and programs that run from ``src``; the build of the
wheel does it by itself. The library is the one that ``UNALIKE_NATIVE`` names, or else what cargo builds in a clone.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PACKAGE = HERE / "src" / "unalike"
LICENCES = ("LICENSE-APACHE", "LICENSE-MIT")
NATIVE = "_native.pyd" if os.name == "nt" else "_native.abi3.so"

CLONE = HERE.parent.parent if (HERE.parent.parent / "guest" / "artifact" / "Cargo.toml").is_file() else None
"""The repository, where this is in one."""


def build() -> None:
    given = os.environ.get("UNALIKE_NATIVE")
    if given:
        put(Path(given), PACKAGE / NATIVE)
    elif CLONE is not None:
        command = ["cargo", "build", "--release", "--locked", "-p", "unalike-python"]
        command += ["--message-format", "json-render-diagnostics"]
        built = subprocess.run(command, cwd=CLONE, check=True, stdout=subprocess.PIPE, text=True).stdout
        messages = [json.loads(line) for line in built.splitlines()]
        (library,) = (
            file
            for message in messages
            if message["reason"] == "compiler-artifact" and message["target"]["name"] == "unalike_python"
            for file in message["filenames"]
            if file.endswith((".so", ".dylib", ".dll"))
        )
        put(Path(library), PACKAGE / NATIVE)
    else:
        what = "install a wheel for this platform, or install from a clone of the repository, which has its sources"
        sys.exit(f"a source distribution has no library of the Rust host: {what}; or name it with UNALIKE_NATIVE")


def put_licences() -> None:
    """Those of the repository, where this is one."""
    for name in LICENCES:
        if CLONE is not None and (CLONE / name).is_file():
            put(CLONE / name, HERE / name)


def page() -> str:
    """The README for readers who have no repository: links into it are their words."""
    text = (HERE / "README.md").read_text(encoding="utf-8")
    return re.sub(r"\[([^][]+)\]\((?!https?:|#)[^)]+\)", r"\1", text)


def put(source: Path, target: Path) -> None:
    """Copies a file, if it is another one, in one step: a program may be running from it."""
    content = source.read_bytes()
    if not target.is_file() or target.read_bytes() != content:
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.with_name(f"{target.name}.new")
        new.write_bytes(content)
        os.replace(new, target)


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
    from hatchling.metadata.plugin.interface import MetadataHookInterface
except ImportError:  # run by hand
    pass
else:

    class Parts(BuildHookInterface):  # type: ignore[type-arg, misc]
        """Called by the build of the wheel and of the source distribution."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            if self.target_name == "wheel":
                build()
                # One library for all versions of Python from 3.10 on.
                platform = re.sub(r"[.-]", "_", sysconfig.get_platform())
                build_data.update(pure_python=False, tag=f"cp310-abi3-{platform}")

    class Page(MetadataHookInterface):
        """Called before anything is said of the package: the licences are looked for then."""

        def update(self, metadata: dict[str, Any]) -> None:
            put_licences()
            metadata["readme"] = {"content-type": "text/markdown", "text": page()}


if __name__ == "__main__":
    build()
