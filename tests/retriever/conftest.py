"""Small models, for encoders, rerankers and their trainings."""

from __future__ import annotations

import pytest
import torch
from transformers.utils import logging

from tests.retriever.encoders.architectures import save


@pytest.fixture(scope="module")
def one_thread():
    """Small models only wait for a second one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folder of each model, created on first use."""
    made = {}
    logging.disable_progress_bar()

    def folder(name):
        if name not in made:
            made[name] = save(name, tmp_path_factory.mktemp("models") / name)
        return made[name]

    yield folder
    logging.enable_progress_bar()
