"""A model with weights in 4 bits and pieces in a trie, loaded by transformers in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retriever.encoders.model_folders import UNIGRAM_SETTINGS, ModelFolder
from retriever.encoders.transformer.tensors import read_tensors, to_values
from retriever.encoders.transformer.unigram_vocabulary import UnigramVocabulary

if TYPE_CHECKING:
    import torch


def is_four_bit(folder: ModelFolder) -> bool:
    """Return whether the weights are in 4 bits, which transformers cannot read itself."""
    return (folder.path / UNIGRAM_SETTINGS).is_file()


def load_four_bit(
    folder: ModelFolder, auto: str, settings: dict[str, Any], **options: Any
) -> tuple[Any, Any, Any]:
    """Return tokenizer, model and transformers' report of missing weights.

    Args:
        folder: folder of the model.
        auto: name of the class in transformers that chooses the class of the model.
        settings: values in place of the ones in config.json.
        options: options of `from_pretrained`.
    """
    import transformers

    config = transformers.AutoConfig.from_pretrained(
        folder.path, local_files_only=True, trust_remote_code=False, **settings
    )
    # Its own `from_pretrained` does not take weights that are in memory.
    model_class = getattr(transformers, auto)._model_mapping[type(config)]
    model, report = model_class.from_pretrained(
        None, config=config, state_dict=_read_state(folder), **options
    )
    return make_tokenizer(folder), model, report


def make_tokenizer(folder: ModelFolder) -> Any:
    """Return the tokenizer of transformers with the same pieces."""
    from transformers import XLMRobertaTokenizer

    vocabulary = UnigramVocabulary(folder.path)
    pieces = vocabulary.read_pieces()
    return XLMRobertaTokenizer(
        vocab=list(zip(pieces, vocabulary.scores.tolist(), strict=True)),
        _spm_precompiled_charsmap=vocabulary.characters,
        model_max_length=folder.config["max_position_embeddings"],
    )


def _read_state(folder: ModelFolder) -> dict[str, torch.Tensor]:
    """Return the weights in float32, by name."""
    import torch

    return {
        name: torch.from_numpy(to_values(tensor)) for name, tensor in read_tensors(folder).items()
    }
