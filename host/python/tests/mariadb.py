"""MariaDB for tests.

Databases on the server that the tests are given, and servers of their own where one must be killed or set otherwise.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import secrets
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, Optional, TypeVar
from urllib.parse import unquote, urlsplit

import pymysql

from servers import Between

PATIENCE = 60.0
"""What is not ready after so many seconds never will be."""

USER = ["--user=root"] if os.getuid() == 0 else []

T = TypeVar("T")


def required(name: str) -> str:
    """A variable that the tests cannot do without."""
    value = os.environ.get(name)
    if not value:
        raise RuntimeError(f"{name} is not set: run these tests with `tests/run --test hosts`")
    return value


def eventually(what: str, attempt: Callable[[], T]) -> T:
    """Until it answers something that holds; never a fixed time."""
    deadline = time.monotonic() + PATIENCE
    last: Optional[Exception] = None
    while time.monotonic() < deadline:
        try:
            answer = attempt()
            if answer:
                return answer
        except Exception as error:
            last = error
        time.sleep(0.02)
    raise AssertionError(f"{what}: not within {PATIENCE} s") from last


def fresh_database(base: Optional[str] = None) -> str:
    """A new database on the server of this URL, as a URL."""
    parts = urlsplit(base or required("UNALIKE_TEST_MYSQL"))
    name = f"unalike_{secrets.token_hex(6)}"
    query(parts.geturl(), f"CREATE DATABASE {name}")
    return parts._replace(path=f"/{name}", query="").geturl()


def query(url: str, *statements: str) -> list[dict[str, Any]]:
    """Runs statements, on a connection of its own. Answers the rows of the last."""
    parts = urlsplit(url)
    with (
        pymysql.connect(
            host=parts.hostname,
            port=parts.port or 3306,
            user=parts.username,
            password=unquote(parts.password or ""),
            database=parts.path[1:] or None,
            charset="utf8mb4",
            autocommit=None,
            connect_timeout=5,
            cursorclass=pymysql.cursors.DictCursor,
        ) as connection,
        connection.cursor() as cursor,
    ):
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())


def free_port() -> int:
    """One that was free a moment ago. It lies below those that the system gives to outgoing connections, any of which
    could take it while a server is down, and above those of well-known services.
    """
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(10_000, first if first > 10_000 else 65_536)
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port


def new_directory() -> Path:
    directory = tempfile.mkdtemp(prefix="unalike-mariadb-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)


@lru_cache(None)
def _template() -> Path:
    """A data directory as a new server has it."""
    directory = new_directory()
    options = [f"--datadir={directory}", "--auth-root-authentication-method=normal", "--skip-test-db", *USER]
    subprocess.run(["mariadb-install-db", "--no-defaults", *options], check=True, stdout=subprocess.DEVNULL)
    return directory


class MariaDb:
    """A server of one test."""

    def __init__(self, *settings: str) -> None:
        self.directory = new_directory()
        self.port = free_port()
        self.settings = settings
        self.process: Optional[subprocess.Popen[bytes]] = None
        shutil.copytree(_template(), self.directory / "data")
        self.restart()
        query(self.url(""), "CREATE DATABASE IF NOT EXISTS ids")

    def url(self, database: str = "ids", user: str = "root") -> str:
        return f"mysql://{user}@127.0.0.1:{self.port}/{database}"

    def restart(self) -> None:
        program = shutil.which("mariadbd", path=f"{os.environ['PATH']}:/usr/sbin")
        if program is None:
            raise RuntimeError("install MariaDB: apt-get install mariadb-server")
        # A server that starts clears the directory of temporary tables: of its own ones, if no other shares it.
        (self.directory / "tmp").mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [
                program,
                "--no-defaults",
                f"--datadir={self.directory}/data",
                f"--socket={self.directory}/socket",
                f"--pid-file={self.directory}/pid",
                f"--tmpdir={self.directory}/tmp",
                "--bind-address=127.0.0.1",
                f"--port={self.port}",
                "--innodb-buffer-pool-size=16M",
                "--innodb-flush-log-at-trx-commit=1",
                *USER,
                *self.settings,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        atexit.register(self.process.kill)
        eventually("the server is ready", lambda: query(self.url(""), "SELECT 1"))

    def kill(self) -> None:
        """kill -9"""
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE)
        atexit.unregister(self.process.kill)

    def __enter__(self) -> MariaDb:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Proxy(Between):
    """Passes bytes on between clients and a server.

    With ``drips`` set, an answer comes byte by byte, for longer than any request may take.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.drips = False
        self._sockets: list[socket.socket] = []
        super().__init__(f"{parts.hostname}:{parts.port or 3306}")
        user = f"{parts.username}@" if parts.username else ""
        self.url = parts._replace(netloc=f"{user}127.0.0.1:{self.port}").geturl()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._upstream)
        except OSError:
            self._end(client)
            return
        self._sockets += [client, server]
        threading.Thread(target=self._back, args=(client, server), daemon=True).start()
        with contextlib.suppress(OSError):
            while data := client.recv(65_536):
                server.sendall(data)
        self._end(client, server)

    def _back(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65_536):
                if self.drips:
                    # The beginning of a packet of 65,535 bytes.
                    client.sendall(b"\xff\xff\0\1")
                    deadline = time.monotonic() + PATIENCE
                    while self.drips and time.monotonic() < deadline:
                        client.sendall(b"\0")
                        time.sleep(0.05)
                    break
                client.sendall(data)
        self._end(client, server)

    @staticmethod
    def _end(*ends: socket.socket) -> None:
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.drips = False
        self.close()
        self._end(*self._sockets)
