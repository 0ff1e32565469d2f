"""Puts what is not written in Python into the package: both components, the library of the Rust host, the statements
of SQLite, and the licences.

``python host/python/build_components.py`` does it in a clone, for tests and programs that run from ``src``; the build
of the wheel does it by itself. The components are the files that ``UNALIKE_COMPONENT_WASM`` and
``UNALIKE_FORMATS_WASM`` name, and the library the one that ``UNALIKE_NATIVE`` names, or else what cargo builds. In a
source distribution everything is there already but the library: without one, the package has no stores but
SQLite and memory.
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
COMPONENTS = {"unalike.wasm": "UNALIKE_COMPONENT_WASM", "unalike-formats.wasm": "UNALIKE_FORMATS_WASM"}
LICENCES = ("LICENSE-APACHE", "LICENSE-MIT")
NATIVE = "_native.pyd" if os.name == "nt" else "_native.abi3.so"

CLONE = HERE.parent.parent if (HERE.parent.parent / "guest" / "artifact" / "Cargo.toml").is_file() else None
"""The repository, where this is in one."""


def build() -> bool:
    """Answers whether the package has the library."""
    build_portable()
    return put_native()


def build_portable() -> None:
    """What runs on any machine."""
    put_components()
    if CLONE is not None:
        put_statements(CLONE)


def put_components() -> None:
    target = PACKAGE / "wasm"
    given = {name: os.environ.get(variable) for name, variable in COMPONENTS.items()}
    target.mkdir(exist_ok=True)
    if all(given.values()):
        for name, path in given.items():
            put(Path(str(path)), target / name)
    elif CLONE is not None:
        command = ["cargo", "run", "--quiet", "--locked", "-p", "unalike-artifact", "--example", "save", "--"]
        subprocess.run([*command, str(target)], cwd=CLONE, check=True)
    missing = [name for name in COMPONENTS if not (target / name).is_file()]
    if missing:
        variables = " and ".join(COMPONENTS.values())
        what = f"set {variables} to the files, or build in a clone of the repository"
        sys.exit(f"{', '.join(missing)} is missing: {what}")


def put_native() -> bool:
    """Answers whether there is one: a source distribution has no sources of it."""
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
    return bool(given) or CLONE is not None


def put_statements(root: Path) -> None:
    """The very files that the Rust adapters read."""
    source, target = root / "adapters" / "sqlite" / "src" / "sql", PACKAGE / "sql" / "sqlite"
    files = [path.relative_to(source) for path in source.rglob("*") if path.is_file()]
    for name in files:
        put(source / name, target / name)
    for path in target.rglob("*"):
        if path.is_file() and path.relative_to(target) not in files:
            path.unlink()


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

    class Components(BuildHookInterface):  # type: ignore[type-arg, misc]
        """Called by the build of the wheel and of the source distribution."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            if self.target_name == "wheel":
                if build():
                    # One library for all versions of Python from 3.10 on.
                    platform = re.sub(r"[.-]", "_", sysconfig.get_platform())
                    build_data.update(pure_python=False, tag=f"cp310-abi3-{platform}")
            else:
                build_portable()

    class Page(MetadataHookInterface):
        """Called before anything is said of the package: the licences are looked for then."""

        def update(self, metadata: dict[str, Any]) -> None:
            put_licences()
            metadata["readme"] = {"content-type": "text/markdown", "text": page()}


if __name__ == "__main__":
    build()
