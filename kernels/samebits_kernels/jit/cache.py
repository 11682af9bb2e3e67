"""Built libraries in the user's cache, one folder a key.

A key covers sources, flags and toolchain. Entries are published by renaming a finished folder, under a lock of
their own; an entry whose library does not match its manifest is a miss. `SAMEBITS_CACHE_DIR` moves the cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import platformdirs

MANIFEST = "manifest.json"


def root() -> Path:
    """Where entries live."""
    override = os.environ.get("SAMEBITS_CACHE_DIR")
    return (Path(override) if override else Path(platformdirs.user_cache_dir("samebits"))) / "kernels"


@dataclass(frozen=True)
class Entry:
    """One library, built from what `key` covers."""

    key: str

    @property
    def folder(self) -> Path:
        """Of the published entry."""
        return root() / self.key

    @property
    def failed_log(self) -> Path:
        """Log of the last failed build."""
        return root() / "failed" / f"{self.key}.log"

    def lock(self) -> filelock.BaseFileLock:
        """Held while building; processes that want the same entry wait for it."""
        root().mkdir(parents=True, exist_ok=True)
        return filelock.FileLock(root() / f"{self.key}.lock")

    def manifest(self) -> dict[str, Any] | None:
        """What was published, if it is whole: the library's digest matches."""
        try:
            manifest: dict[str, Any] = json.loads((self.folder / MANIFEST).read_text())
            library = (self.folder / manifest["library"]).read_bytes()
        except (OSError, ValueError, KeyError):
            return None
        return manifest if hashlib.sha256(library).hexdigest() == manifest.get("sha256") else None

    def staging(self) -> Path:
        """A fresh folder on the same filesystem to build in."""
        root().mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f".{self.key[:16]}-", dir=root()))

    def publish(self, staging: Path, library: Path, about: dict[str, Any]) -> None:
        """Move `library` and the log of `staging` into place, in one rename."""
        ready = staging / "ready"
        ready.mkdir()
        digest = hashlib.sha256(library.read_bytes()).hexdigest()
        shutil.move(str(library), ready / library.name)
        if (staging / "build.log").exists():
            shutil.move(str(staging / "build.log"), ready / "build.log")
        manifest = {**about, "library": library.name, "sha256": digest, "key": self.key}
        (ready / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
        if self.folder.exists():  # a corrupt one
            shutil.rmtree(self.folder, ignore_errors=True)
        ready.rename(self.folder)


def entries() -> list[Entry]:
    """All published entries, newest first."""
    if not root().is_dir():
        return []
    folders = [f for f in root().iterdir() if (f / MANIFEST).is_file()]
    return [Entry(f.name) for f in sorted(folders, key=lambda f: f.stat().st_mtime, reverse=True)]
