"""Other versions of the code: a directory that holds one, or a revision of the repository that this code is from."""

from __future__ import annotations

import asyncio
import io
import tarfile
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HERE = Path(__file__).resolve().parents[2]
FOLDED_BY = ("domain", "projections")


class NoCheckout(Exception):
    """There is no such version of the code, or it cannot do what it is asked for; the message is one line."""


@asynccontextmanager
async def checkout(version: str) -> AsyncIterator[Path]:
    """Lend the directory of a version: `version` itself if it is one, else a revision, unpacked for the time being.

    The repository stays as it is. Raises `NoCheckout`.
    """
    if (directory := _directory(version)) is not None:
        yield directory
        return
    commit = (
        await _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{version}^{{commit}}", of=version)
    ).strip()
    packed = await _git("archive", "--format=tar", commit.decode(), *FOLDED_BY, of=version)
    with tempfile.TemporaryDirectory(prefix="rejoinder-") as unpacked:
        await asyncio.to_thread(_unpack, packed, unpacked)
        yield Path(unpacked)


def _directory(version: str) -> Path | None:
    directory = Path(version).resolve()
    if not directory.is_dir():
        return None
    if missing := [name for name in FOLDED_BY if not (directory / name / "__init__.py").is_file()]:
        raise NoCheckout(f"{version} is no checkout of Rejoinder: it has no package {missing[0]}")
    return directory


async def _git(*arguments: str, of: str) -> bytes:
    try:
        git = await asyncio.create_subprocess_exec(
            "git", "-C", str(HERE), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
    except OSError as error:
        raise NoCheckout(f"{of} is no directory, and git cannot be run: {error}") from error
    said, wrong = await git.communicate()
    if git.returncode:
        reason = wrong.decode(errors="replace").strip().splitlines()
        raise NoCheckout(f"{of} is no directory, and no revision of {HERE}" + (f": {reason[0]}" if reason else ""))
    return said


def _unpack(packed: bytes, directory: str) -> None:
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        files.extractall(directory, filter="data")
