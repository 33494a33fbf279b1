"""Encoder families, and the note about settings that the files of a model do not name."""

import json
import shlex

import pytest

from retriever.encoders import EncoderSpec, missing_settings, parse_encoder
from retriever.encoders.families import FAMILIES
from retriever.encoders.model_folders import DEFAULT_WINDOW

HASH = "0123456789abcdef0123456789abcdef01234567"
# A window that no model has by default.
OWN_WINDOW = 128
PROMPTED = [family for family in FAMILIES if family.query]
BGE = "BAAI/bge-base-en-v1.5"


def note(text, window=OWN_WINDOW):
    return missing_settings(EncoderSpec(parse_encoder(f"{text}::max-length={window}"), "w", 8))


def named_settings(message):
    """Return the encoder in the command that a note names."""
    command = message.partition("--model ")[2].partition(" (settings of ")[0]
    (text,) = shlex.split(command)
    return parse_encoder(text)


@pytest.fixture
def model(tmp_path):
    """Return a function that writes the files of a model and returns its folder."""

    def write(name, **files):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        for stem, content in files.items():
            if stem == "card":
                (folder / "README.md").write_text(content, encoding="utf-8")
            else:
                (folder / f"{stem}.json").write_text(json.dumps(content))
        return folder

    return write


@pytest.mark.parametrize("card", [family.card for family in FAMILIES])
def test_each_family_matches_its_own_card_and_no_earlier_family(card):
    (family,) = [candidate for candidate in FAMILIES if candidate.card == card]
    message = note(card)
    assert (message is not None) == bool(family.query or family.passage)
    assert message is None or family.card in message
    assert message is None or family.source in message


@pytest.mark.parametrize("card", [family.card for family in PROMPTED])
def test_following_the_note_silences_it(card):
    (family,) = [candidate for candidate in PROMPTED if candidate.card == card]
    settings = named_settings(note(card))
    assert settings.query_prompt == family.query
    assert (settings.passage_prompt or "") == family.passage
    assert missing_settings(EncoderSpec(settings, "w", 8)) is None


@pytest.mark.parametrize(
    "name",
    [
        "./E5-Base",
        "/models/multilingual-e5-large/",
        f"/hub/models--intfloat--e5-large-v2/snapshots/{HASH}",
        f"/hub/models--BAAI--bge-small-en-v1.5/snapshots/{HASH}/",
        r"C:\models\bge-small-en",
        "my-bge-small-en-v1.5-tuned",
        "http://127.0.0.1:8080/v1#intfloat/e5-small-v2",
    ],
)
def test_names_that_contain_a_family_lack_its_prompt(name):
    assert "query-prompt" in note(name)


@pytest.mark.parametrize(
    "name",
    [
        "all-MiniLM-L6-v2",
        "BAAI/bge-m3",
        "BAAI/bge-reranker-base",
        "thenlper/gte-small",
        "nomic-ai/nomic-embed-code",
        "/home/e5-base/models/minilm",
        f"/hub/models--me--minilm/snapshots/{HASH}",
        "paraphrase-multilingual-MiniLM-L12-v2",
        "intfloat/e5-base-v2::static=average",
        "intfloat/e5-small-unsupervised",
        "Snowflake/snowflake-arctic-embed-m-v2.0",
        "bge-base-en.npy",
    ],
)
def test_models_of_other_families_get_no_note(name):
    assert note(name) is None


@pytest.mark.parametrize(
    "name", ["somee5-base", "e5-baseball", "e5-basev2", "mybge-small-en", "bge-small-english"]
)
def test_family_inside_another_word_does_not_match(name):
    assert note(name) is None


def test_note_names_only_the_prompt_that_is_missing():
    message = note("intfloat/e5-base-v2::query-prompt=query: ")
    assert "need passage-prompt, " in message
    assert note("BAAI/bge-base-en::query-prompt=x") is None


def test_folder_without_modules_lacks_the_pooling_of_its_family(model):
    folder = model("bge-small-en-v1.5", config={"model_type": "bert"})
    message = note(folder)
    assert "need query-prompt and pooling, " in message
    assert named_settings(message).pooling == "cls"
    assert note(f"{folder}::query-prompt=x::pooling=cls") is None


def test_pooling_other_than_that_of_the_family_is_noted(model):
    folder = model("gte-small", config={"model_type": "bert"})
    assert note(folder) is None
    message = note(f"{folder}::pooling=cls")
    assert "need pooling, " in message
    assert named_settings(message).pooling == "mean"


def test_pooling_in_the_files_is_right_whatever_the_name(model):
    folder = model("bge-small-en-v1.5", modules=[])
    assert "need query-prompt, " in note(folder)
    assert "need query-prompt, " in note(f"{folder}::pooling=max")


@pytest.mark.parametrize("layers", ["layers=0,1", "fusion=sbert-wk", "layers=0,1::fusion=concat"])
def test_pooling_of_other_layers_is_not_noted(model, layers):
    folder = model("bge-small-en-v1.5")
    assert "need query-prompt, " in note(f"{folder}::{layers}")


def test_default_window_is_noted_where_no_file_names_one(model):
    folder = model("bge-m3", modules=[])
    message = note(folder, DEFAULT_WINDOW)
    assert "need max-length, " in message
    assert named_settings(message).max_length == 8192
    assert note(folder, OWN_WINDOW) is None


@pytest.mark.parametrize("window", [DEFAULT_WINDOW, 8192])
def test_window_in_the_files_is_right(model, window):
    files = {"modules": [], "sentence_bert_config": {"max_seq_length": window}}
    assert note(model("bge-m3", **files), DEFAULT_WINDOW) is None


def test_window_of_a_family_with_the_default_window_is_not_noted(model):
    assert note(model("gte-small", modules=[]), DEFAULT_WINDOW) is None


def test_pooling_and_window_of_a_model_elsewhere_are_not_noted():
    assert note("http://127.0.0.1/v1#bge-m3", DEFAULT_WINDOW) is None
    assert note("/no/such/bge-m3", DEFAULT_WINDOW) is None


@pytest.mark.parametrize(
    "front_matter",
    [
        f"base_model: {BGE}",
        f'license: mit\nbase_model: "{BGE}"\ntags: []',
        f"base_model:\n- {BGE}\n- other/model",
        f"base_model:\n  - '{BGE}'",
        "base_model: nreimers/MiniLM\nmodel_name: bge-base-en-v1.5",
    ],
)
def test_card_in_a_folder_names_the_family(model, front_matter):
    folder = model("notes", card=f"---\n{front_matter}\n---\n# Notes\n", modules=[])
    message = note(folder)
    assert "models made from " in message
    assert "need query-prompt, " in message
    assert BGE in message


@pytest.mark.parametrize(
    "card",
    [
        f"base_model: {BGE}\n",
        f"---\nlicense: mit\n---\nbase_model: {BGE}\n",
        "---\nbase_model:\n---\n",
        "",
    ],
)
def test_card_without_base_model_in_its_front_matter_names_no_family(model, card):
    assert note(model("notes", card=card)) is None


def test_configuration_names_the_family_of_a_saved_model(model):
    folder = model("notes", config={"_name_or_path": f"/cache/{BGE.replace('/', '_')}/"})
    message = note(folder)
    assert "need query-prompt and pooling, " in message


@pytest.mark.parametrize("config", [[], "text", {"_name_or_path": 3}, {"_name_or_path": None}])
def test_configuration_of_another_form_names_no_family(model, config):
    assert note(model("notes", config=config)) is None


@pytest.mark.parametrize("name", ["config.json", "README.md"])
def test_unreadable_file_names_no_family(model, name):
    folder = model("notes")
    (folder / name).write_bytes(b"---\n\xff\xfe{")
    assert note(folder) is None
    (folder / name).unlink()
    (folder / name).mkdir()
    assert note(folder) is None


def test_name_of_a_folder_goes_before_its_card(model):
    folder = model("e5-small-v2", card=f"---\nbase_model: {BGE}\n---\n")
    assert "intfloat/e5-small-v2" in note(folder)


def test_meta_embedding_and_encoder_of_a_program_get_no_note(model):
    assert note(model("bge-small-en", meta={})) is None
    settings = parse_encoder("bge-small-en::max-length=128")
    assert missing_settings(EncoderSpec(settings, f"{EncoderSpec.PROBED}0", 8)) is None
