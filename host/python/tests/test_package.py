"""The wheel, installed from its file into an empty environment and used there; the examples and the README."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import get_args

import pytest
from servers import serving
from unalike import IdsErrorKind, StoreErrorKind

HERE = Path(__file__).parents[1]

PROGRAM = '''"""What a user writes."""

import asyncio
import sys
from datetime import datetime, timezone

from unalike import LAYOUTS, AsyncIds, Batch, FixedStep, Ids, IdsError, StoreError, TagOptions, formats
from unalike.memory import MemoryStore
from unalike.remote import RemoteStore

store = MemoryStore()
store.create_tag("ticket", TagOptions(step=FixedStep(10), mode="ordered"))

with Ids(segments=store, leases=store) as ids:
    orders = ids.sequence("order")
    first: int = orders.next()
    batch: Batch = orders.take(1_000)
    total: int = sum(batch)
    maybe: int | None = orders.try_next()
    flake: int = ids.snowflake("default", "twitter").next()
    text: str = formats.encode(flake, "base62")
    assert formats.decode(text, "base62") == flake and formats.unpack(flake, LAYOUTS["twitter"]).sequence == 0
    daily = formats.Format("{yyyyMMdd}-{id:06}", bits=19, restart="day")
    now = datetime.now(timezone.utc)
    today: str = daily.write(ids.sequence_of("invoice", daily.period(now), id_max=daily.id_max).next(), now)
    always: formats.Format = formats.Format("{id}")
    assert always.period(now) is None and daily.read(today).id == 1
    shown: str = ids.formatted("shown", always).next()
    numbers: list[int] = ids.formatted_snowflake("web", "twitter", always).take_numbers(2)
    for id in ids.sequence("ticket"):
        ticket: int = id
        break

try:
    RemoteStore("nowhere")
except StoreError as error:
    assert error.kind == "refused"

try:
    orders.next()
except IdsError as error:
    kind: str = error.kind


async def main() -> int:
    async with AsyncIds(segments=store) as ids:
        return await (await ids.sequence("order")).next()


print(first, total, ticket, kind, asyncio.run(main()) > 1_001, "site-packages" in str(sys.modules["unalike"].__file__))
'''


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """By way of the source distribution, which holds what git does not."""
    target = tmp_path_factory.mktemp("dist")
    environment = {**os.environ, "UNALIKE_NATIVE": str(HERE / "src" / "unalike" / "_native.abi3.so")}
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(HERE)]
    built = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (found,) = target.glob("*.whl")
    return found


def test_what_is_in_the_wheel(wheel: Path) -> None:
    platform = re.sub(r"[.-]", "_", sysconfig.get_platform())
    assert wheel.name == f"unalike-0.1.0-cp310-abi3-{platform}.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read("unalike-0.1.0.dist-info/METADATA").decode()
    for name in ("unalike/py.typed", "unalike/_native.abi3.so", "unalike/_native.pyi"):
        assert name in names
    assert not [name for name in names if name.endswith(".wasm") or "test" in name or "__pycache__" in name]
    assert "Requires-Dist" not in metadata and "From Python" in metadata
    for name in ("LICENSE-APACHE", "LICENSE-MIT"):
        assert f"unalike-0.1.0.dist-info/licenses/{name}" in names and f"License-File: {name}\n" in metadata
    assert (HERE.parents[1] / "LICENSE-MIT").read_bytes() == (HERE / "LICENSE-MIT").read_bytes()
    links = re.findall(r"\]\(([^)]+)\)", metadata)
    assert all(link.startswith("https://") for link in links), "a page of a package has no files beside it"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the package and nothing else."""
    venv = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    python = venv / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", str(wheel)], check=True)
    return python


def ran(python: Path, program: Path) -> str:
    """What a program prints that runs in its folder."""
    environment = {"HOME": str(program.parent), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [str(python), str(program)], env=environment, capture_output=True, text=True, cwd=program.parent, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def checked_strictly(python: Path, folder: Path, *programs: str) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), *programs]
    environment = {**os.environ, "MYPY_CACHE_DIR": str(folder / "mypy")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stdout


def test_a_user_program(installed: Path, tmp_path: Path) -> None:
    python, program = installed, tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    for _ in range(2):
        ran = subprocess.run([str(python), str(program)], env=environment, capture_output=True, text=True, cwd=tmp_path)
        total = sum(range(2, 1_002))
        assert (ran.stdout, ran.stderr) == (f"1 {total} 1 closed True True\n", "")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), str(program)],
        env={**environment, "MYPY_CACHE_DIR": str(tmp_path / "mypy")},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert checked.returncode == 0, checked.stdout
    program.write_text(PROGRAM.replace("first: int =", "first: str ="))
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), str(program)],
        env={**environment, "MYPY_CACHE_DIR": str(tmp_path / "mypy")},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert "Incompatible types in assignment" in checked.stdout, "the types are seen"


def test_the_package_is_strictly_typed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.10", "--ignore-missing-imports"]
    checked = subprocess.run(
        [*command, "--cache-dir", str(tmp_path), "src/unalike"], cwd=HERE, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("example", ["django_orders.py", "sqlalchemy_orders.py"])
def test_examples(tmp_path: Path, example: str) -> None:
    with serving(tmp_path / "ids.sqlite") as server:
        ran = subprocess.run(
            [sys.executable, str(HERE / "examples" / example), server.url],
            env={**os.environ, "PYTHONPATH": str(HERE / "src")},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert ran.returncode == 0, ran.stderr
    rows = 1_001 if example.startswith("django") else 1_000
    assert ran.stdout.splitlines()[-1] == f"rows: {rows} distinct: {rows}"


README = (HERE / "README.md").read_text()


def test_the_programs_of_the_readme_run(installed: Path, tmp_path: Path) -> None:
    """In an empty folder, as a reader types them, and once more; the rest is quoted from the examples."""
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    first, any_store, coroutines, *excerpts = blocks
    compile(any_store, "README.md", "exec")
    (tmp_path / "first.py").write_text(first)
    (tmp_path / "coroutines.py").write_text(coroutines)
    assert [ran(installed, tmp_path / "first.py") for _ in range(2)] == ["1\n", "2\n"]
    assert ran(installed, tmp_path / "coroutines.py") == "3\n4\n"
    checked_strictly(installed, tmp_path, "first.py", "coroutines.py")
    assert len(excerpts) == 2
    for excerpt, example in zip(excerpts, ("django_orders.py", "sqlalchemy_orders.py")):
        lines = (HERE / "examples" / example).read_text().splitlines()
        assert not [line for line in excerpt.splitlines() if line not in lines]
    for path in re.findall(r"\]\((?!https?:)([^)#]+)", README):
        assert (HERE / path).exists(), path


def test_the_line_of_the_readme_for_sigterm(installed: Path, tmp_path: Path) -> None:
    """What was held goes back, so that the next process goes on where this one ended."""
    (line,) = re.findall(r"`(signal\.signal\(.*?)`", README)
    program = f"""
import signal, sys, time
from unalike import Ids
from unalike.sqlite import SqliteStore
{line}
with Ids(segments=SqliteStore("ids.sqlite")) as ids:
    print(ids.sequence("order").next(), flush=True)
    while True:
        time.sleep(1)
"""
    for wanted in ("1\n", "2\n"):
        command = [str(installed), "-c", program]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
            assert process.stdout is not None and process.stdout.readline() == wanted
            process.terminate()
            assert process.wait(60) == 0


def test_the_imports_of_the_readme(installed: Path, tmp_path: Path) -> None:
    """No driver is needed for any."""
    imports = re.findall(r"\| `(from unalike\.(\w+) import \w+)` \|", README)
    assert {name for _, name in imports} == {"sqlite", "mysql", "redis", "remote", "stores", "memory"}
    for line, _ in imports:
        exec(line, {})
        done = subprocess.run([str(installed), "-c", line], capture_output=True, text=True, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_examples_are_strictly_typed(tmp_path: Path) -> None:
    """Django has no types of its own."""
    command = [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "--allow-subclassing-any"]
    command += ["--cache-dir", str(tmp_path), "examples"]
    environment = {**os.environ, "MYPYPATH": "src"}
    checked = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_the_readme_lists_all_kinds_of_errors() -> None:
    errors = README.partition("\n## Errors\n")[2].partition("\n## ")[0]
    for kind in (*get_args(IdsErrorKind), *get_args(StoreErrorKind)):
        assert f"`{kind}`" in errors, kind


def test_the_readme_says_what_is_so() -> None:
    """Its sessions are run."""
    text = README
    sessions = "\n\n".join(re.findall(r"```pycon\n(.*?)```", text, re.DOTALL))
    test = doctest.DocTestParser().get_doctest(sessions, {}, "README.md", None, 0)
    assert len(test.examples) >= 10
    runner = doctest.DocTestRunner()
    runner.run(test)
    assert runner.failures == 0
    for module in sorted((HERE / "src" / "unalike").glob("*.py")):
        name = f"unalike.{module.stem}" if module.stem != "__init__" else "unalike"
        if ">>>" in module.read_text():
            __import__(name)
            failed, _ = doctest.testmod(sys.modules[name])
            assert failed == 0, name
