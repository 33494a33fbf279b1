"""Finding the files of a data set: each may be there gzipped, with `.gz` after its name."""

from __future__ import annotations

from pathlib import Path

from retriever.errors import SourceError


def existing(path: Path) -> Path | None:
    """The file, or the gzipped one, or None."""
    for one in (path, path.with_name(path.name + ".gz")):
        if one.is_file():
            return one
    return None


def required(path: Path, split: str, splits: tuple[str, ...] = ()) -> Path:
    """A file of a split, or the gzipped one.

    Raises:
        SourceError: there is neither; names `splits`, those that are there.
    """
    found = existing(path)
    if found is None:
        has = f"; the folder has the splits {', '.join(splits)}" if splits else ""
        raise SourceError(f"{path}: expected this file of the split {split!r}, found none{has}")
    return found


def matching(folder: Path, pattern: str) -> list[Path]:
    """Files and folders whose names match, gzipped or not, in the order of their names."""
    return sorted({*folder.glob(pattern), *folder.glob(pattern + ".gz")})


def between(folder: Path, prefix: str, suffix: str) -> tuple[str, ...]:
    """What stands between prefix and suffix in names of files, in alphabetical order."""
    names = {path.name.removesuffix(".gz") for path in matching(folder, f"{prefix}*{suffix}")}
    return tuple(sorted(name.removeprefix(prefix).removesuffix(suffix) for name in names))
