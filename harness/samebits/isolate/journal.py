"""The journal: length-prefixed JSON records, each on disk before the call that wrote it returns."""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_HEAD = struct.Struct("<I")
DISK_EXIT = 74
"""Exit status of a worker that could not write its journal (EX_IOERR)."""


class JournalWriter:
    """The worker's end. Wakes the parent through `notify` after each record."""

    def __init__(self, path: Path, notify: int | None = None) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._notify = notify

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record and wait until it is on disk. A disk that is full ends the process."""
        body = json.dumps(record).encode()
        data = _HEAD.pack(len(body)) + body
        try:
            while data:
                data = data[os.write(self._fd, data) :]
            os.fsync(self._fd)
        except OSError as error:
            with contextlib.suppress(OSError):  # standard error may be a file on the same disk
                os.write(2, f"samebits: cannot write results: {error}\n".encode())
            os._exit(DISK_EXIT)
        if self._notify is not None:
            os.write(self._notify, b".")


class JournalReader:
    """The parent's end: yields whole records; a torn last one waits for its rest, or is dropped at the end."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0

    def read(self) -> list[dict[str, Any]]:
        """The records that were completed since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        records, at = [], 0
        while at + _HEAD.size <= len(data):
            (length,) = _HEAD.unpack_from(data, at)
            end = at + _HEAD.size + length
            if end > len(data):
                break
            records.append(json.loads(data[at + _HEAD.size : end]))
            at = end
        self._offset += at
        return records
