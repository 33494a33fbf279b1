"""Fixtures shared by the tests of encoders: small models and encoders of them."""

from __future__ import annotations

import json
import shutil
from functools import cache

import pytest

from retriever.encoders.encoder import Encoder
from tests.retriever.encoders.plain import Plain
from tests.retriever.encoders.sentence_models import PARTS, weights


@pytest.fixture(scope="module")
def plain(folders):
    """The `Plain` of each model."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = Plain(folders(name))
        return made[name]

    return get


@pytest.fixture(scope="module")
def load(folders):
    """Loads an encoder by a model's name and settings, once."""

    @cache
    def load_(name, settings=""):
        return Encoder.load("::".join(filter(None, [str(folders(name)), settings])), device="cpu")

    return load_


@pytest.fixture
def make(folders, tmp_path):
    """Makes a sentence-transformers model: kinds of modules, and a config for each that has one."""

    def make_(*modules, name="bert", prompts=None, default=None):
        folder = tmp_path / "sentences"
        shutil.copytree(folders(name), folder)
        listed = [{"idx": 0, "name": "0", "path": "", "type": f"{PARTS}Transformer"}]
        for number, (kind, config) in enumerate(modules, 1):
            path = folder / f"{number}_{kind}"
            path.mkdir()
            listed.append(
                {"idx": number, "name": str(number), "path": path.name, "type": PARTS + kind}
            )
            if config is not None:
                (path / "config.json").write_text(json.dumps(config))
            if kind == "Dense":
                weights(path, config, seed=number)
        (folder / "modules.json").write_text(json.dumps(listed))
        if prompts is not None:
            (folder / "config_sentence_transformers.json").write_text(
                json.dumps({"prompts": prompts, "default_prompt_name": default})
            )
        return folder

    return make_
