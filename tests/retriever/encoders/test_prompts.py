"""Encoder families that need prompts, and the note about a missing prompt."""

import pytest

from retriever.encoders import EncoderSpec, missing_prompts, parse_encoder
from retriever.encoders.prompts import FAMILIES

HASH = "0123456789abcdef0123456789abcdef01234567"


def fault(text):
    return missing_prompts(EncoderSpec(parse_encoder(f"{text}::max-length=128"), "w", 8))


@pytest.mark.parametrize("card", [family.card for family in FAMILIES])
def test_each_family_is_known_by_its_own_card_and_silent_with_its_prompts(card):
    (family,) = [candidate for candidate in FAMILIES if candidate.card == card]
    message = fault(card)
    assert family.card in message
    assert ("passage-prompt" in message) == bool(family.passage)
    prompted = message.partition("--model ")[2].partition(" (prompts of")[0]
    assert fault(prompted.strip("'").replace("::max-length=128", "")) is None


@pytest.mark.parametrize(
    "name",
    [
        "./E5-Base",
        "/models/multilingual-e5-large/",
        f"/hub/models--intfloat--e5-large-v2/snapshots/{HASH}",
        "my-bge-small-en-v1.5-tuned",
    ],
)
def test_folders_named_after_a_family_are_known(name):
    assert "query-prompt" in fault(name)


@pytest.mark.parametrize(
    "name",
    [
        "all-MiniLM-L6-v2",
        "BAAI/bge-m3",
        "BAAI/bge-reranker-base",
        "thenlper/gte-small",
        "nomic-ai/nomic-embed-code",
        "/home/e5-base/models/minilm",
        "paraphrase-multilingual-MiniLM-L12-v2",
        "intfloat/e5-base-v2::static=average",
    ],
)
def test_models_of_unknown_families_have_no_prompt_fault(name):
    assert fault(name) is None


def test_model_with_explicit_prompt_has_no_prompt_fault():
    message = fault("intfloat/e5-base-v2::query-prompt=query: ")
    assert "need passage-prompt, " in message
    assert fault("BAAI/bge-base-en::query-prompt=x") is None
