"""The settings of an index: JSON values by key, sealed together so that an altered one is found."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Any

from indexes.files.faults import damaged_database

_SEAL = "seal"


def read_setting(connection: sqlite3.Connection, key: str, default: Any = None) -> Any:
    """The JSON value of one setting; KeyError if there is none and no default but None."""
    row = connection.execute("SELECT value FROM settings WHERE key = ?", (key,)).fetchone()
    if row is None:
        if default is not None:
            return default
        raise KeyError(key)
    return json.loads(row[0])


def write_setting(connection: sqlite3.Connection, key: str, value: Any) -> None:
    """Store one JSON value, replacing an earlier one, and seal all of them anew.

    The caller is inside a transaction.
    """
    _store(connection, key, value)
    _store(connection, _SEAL, _seal(connection))


def check_settings(connection: sqlite3.Connection, folder: Path) -> None:
    """Check that all settings are as they were written.

    They are taken as they are where a release before the seal wrote them and none has since.

    Raises:
        DamagedIndexError: one was altered.
    """
    try:
        sealed = read_setting(connection, _SEAL, "")
    except ValueError:
        sealed = None
    if sealed != "" and sealed != _seal(connection):
        raise damaged_database(folder, "a setting was altered (the checksum of all differs)")


def _seal(connection: sqlite3.Connection) -> str:
    rows = connection.execute(
        "SELECT key, value FROM settings WHERE key != ? ORDER BY key", (_SEAL,)
    ).fetchall()
    # Damage can make anything of a value.
    content = json.dumps(rows, default=repr)
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def _store(connection: sqlite3.Connection, key: str, value: Any) -> None:
    connection.execute(
        "INSERT INTO settings VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (key, json.dumps(value, ensure_ascii=False, sort_keys=True)),
    )
