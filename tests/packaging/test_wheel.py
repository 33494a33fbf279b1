"""The wheel, not the checkout, installs into a clean environment and does the main job there."""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from retriever.encoders.model_folders import BUNDLED

ROOT = Path(__file__).resolve().parents[2]
# What no package is built from, and may be large.
UNBUILT = (".*", "build", "node_modules", "*.egg-info")
PACKAGES = sorted(path.parent.name for path in (ROOT / "model").glob("*/build_model.py"))


def _run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """The folder of a new environment with only the wheel and its dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    # Other processes that test may build in the same place.
    source = folder / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*UNBUILT))
    # From a source distribution, as releases are made.
    build = [sys.executable, "-m", "build", "--outdir", str(folder)]
    _run([*build, str(source)])
    _run([*build, "--wheel", str(source / "model/minilm")])
    venv.create(folder / "env", with_pip=True)
    pip = [str(folder / "env/bin/python"), "-m", "pip", "--disable-pip-version-check"]
    pip += ["install", "--quiet", "--constraint", str(ROOT / "constraints.txt")]
    _run([*pip, "--find-links", str(folder), "layer-retriever[cpu,offline]"])
    return folder


def _environment(clean, **more):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return environment | {"PATH": f"{clean / 'env/bin'}{os.pathsep}{os.environ['PATH']}"} | more


@pytest.mark.soak
def test_installed_wheel_indexes_queries_and_verifies_without_torch(clean, tmp_path):
    (tmp_path / "corpus.jsonl").write_text(
        '{"id": "a", "text": "The cat sat on the mat."}\n'
        '{"id": "b", "text": "Prices fell by 3.5% on Tuesday."}\n'
    )
    environment = _environment(clean)
    assert not list((clean / "env/lib").glob("python3*/site-packages/torch"))
    size = sum(path.lstat().st_blocks * 512 for path in (clean / "env").rglob("*"))
    assert size < 530 * 2**20
    _run(["retriever", "index", "corpus.jsonl"], cwd=tmp_path, env=environment)
    done = _run(
        ["retriever", "query", "feline", "-k", "1", "--json"], cwd=tmp_path, env=environment
    )
    assert json.loads(done.stdout)["id"] == "a"
    assert _run(["retriever", "verify"], cwd=tmp_path, env=environment).stdout.endswith("sound\n")


@pytest.mark.soak
def test_a_question_finds_notes_in_other_languages_without_torch(clean, tmp_path):
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path)]
    _run([*build, str(clean / "source/model/e5")])
    (wheel,) = tmp_path.glob("layer_retriever_e5-*.whl")
    packages = tmp_path / "packages"
    pip = [str(clean / "env/bin/python"), "-m", "pip", "--disable-pip-version-check"]
    _run([*pip, "install", "--quiet", "--no-index", "--target", str(packages), str(wheel)])
    assert not list(packages.rglob("*.so"))
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "ru.md").write_text("Зёрна кофе хранят в закрытой банке, вдали от света.")
    (notes / "ja.md").write_text("自転車のチェーンは月に一度、乾いた布で拭いてから油をさす。")
    environment = _environment(clean, PYTHONPATH=str(packages))
    model = ["--model", "multilingual-e5-small"]
    _run(["retriever", "index", "notes", "-i", "ix", *model], cwd=tmp_path, env=environment)
    for question, note in (("bicycle chain", "ja.md"), ("keeping coffee beans", "ru.md")):
        query = ["retriever", "query", question, "-i", "ix", "-k", "1", "--json"]
        assert json.loads(_run(query, cwd=tmp_path, env=environment).stdout)["id"] == note


@pytest.mark.soak
def test_packages_are_imported_from_the_wheel_not_the_checkout(clean, tmp_path):
    program = "import retriever, indexes, cli, eval as e; print(retriever.__file__, e.__file__)"
    done = _run([str(clean / "env/bin/python"), "-c", program], cwd=tmp_path)
    assert all(str(clean) in path for path in done.stdout.split())


@pytest.mark.soak
def test_without_faiss_a_flat_index_answers_queries_in_every_mode(clean, tmp_path):
    (tmp_path / "corpus.jsonl").write_text(
        '{"id": "a", "text": "The cat sat on the mat."}\n{"id": "b", "text": "Prices fell."}\n'
    )
    (tmp_path / "queries.jsonl").write_text(
        '{"id": "1", "text": "cat"}\n{"id": "2", "text": "prices"}\n'
    )
    # None stands for what is not installed.
    (tmp_path / "without").mkdir()
    (tmp_path / "without/sitecustomize.py").write_text("import sys; sys.modules['faiss'] = None\n")
    batch = ["retriever", "query", "--queries", "queries.jsonl", "--mode", "dense", "--run"]
    _run(["retriever", "index", "corpus.jsonl"], cwd=tmp_path, env=_environment(clean))
    _run([*batch, "with.run"], cwd=tmp_path, env=_environment(clean))
    environment = _environment(clean, PYTHONPATH=str(tmp_path / "without"))
    _run(["retriever", "index", "corpus.jsonl", "--recreate"], cwd=tmp_path, env=environment)
    _run([*batch, "without.run"], cwd=tmp_path, env=environment)
    assert (tmp_path / "with.run").read_text() == (tmp_path / "without.run").read_text()
    for mode in ("bm25", "hybrid", "dense"):
        done = _run(["retriever", "query", "cat", "--mode", mode], cwd=tmp_path, env=environment)
        assert "a" in done.stdout
    command = ["retriever", "compact", "--index-type", "HNSW16"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "layer-retriever[cpu]" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("folder", PACKAGES)
def test_a_package_of_a_model_has_the_version_and_checksum_that_are_expected(folder):
    content = (ROOT / "model" / folder / "build_model.py").read_text()
    name, version = re.search(r'^NAME, VERSION = "(.*)", "(.*)"$', content, re.MULTILINE).groups()
    (weights,) = re.findall(r'^WEIGHTS = "(.*)"$', content, re.MULTILINE)
    assert f'"{name.replace("_", "-")}=={version}"' in (ROOT / "setup.py").read_text()
    (bundled,) = [model for model in BUNDLED.values() if name in model.packages]
    assert bundled.weights == weights
