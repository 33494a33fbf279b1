"""A meta-embedding as an encoder: its vectors, its window, its sources, its folder."""

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from retriever import Index
from retriever.encoders import Encoder
from retriever.encoders.meta import MetaSettings, fit_meta, read_folder
from retriever.encoders.meta.sources import word_spans
from retriever.encoders.static import StaticModel, fit_static
from retriever.encoders.transformer.backbone import Backbone
from retriever.encoders.transformer.numpy_engine import NumPyEngine
from retriever.encoders.transformer.openvino_engine import OpenVINOEngine
from retriever.errors import ConfigError, EncoderMismatchError, ModelError
from tests.retriever.encoders.architectures import CLOSE
from tests.retriever.encoders.plain import unit
from tests.retriever.encoders.static.static_samples import write_vectors

TEXTS = ["w1 w2 w3", "Hello, there! w3 w3 zoo w12", "w5 the cat sat 😀 w39", "", "a", "don't mat"]

needs_openvino = pytest.mark.skipif(not find_spec("openvino"), reason="OpenVINO is not installed")


@pytest.fixture
def static(tmp_path):
    fit_static(write_vectors(tmp_path), "average", ()).save(tmp_path / "static")
    return str(tmp_path / "static")


@pytest.fixture
def combine(tmp_path, monkeypatch):
    """Makes a meta-embedding of sources, in the folder `both`."""
    monkeypatch.chdir(tmp_path)

    def make(*sources, method="conc", output="both", texts=TEXTS, **settings):
        named = [str(source) if isinstance(source, Path) else source for source in sources]
        return fit_meta(texts, named, output, MetaSettings(method, **settings), device="cpu")

    return make


def transformer_words(form, text, layers):
    """The unit vector of each word: the mean of its pieces' mean over layers."""
    (one,) = Encoder.load(form, device="cpu").hidden_states([text])
    states = one.states[list(layers)].mean(axis=0)
    found = []
    for start, stop in word_spans(text):
        mine = [k for k, (a, b) in enumerate(one.spans) if max(a, start) < min(b, stop)]
        found.append(states[mine].mean(axis=0) if mine else np.zeros(states.shape[1], np.float32))
    return unit(np.array(found).reshape(len(found), -1))


def static_words(folder, text):
    model = StaticModel.load(folder)
    (ids,), (spans,) = model.tokenize_with_offsets([text])
    vectors = np.vstack([model.lexicon.vectors, np.zeros((1, 5), np.float32)])[ids]
    found = np.zeros((len(word_spans(text)), 5), np.float32)
    for row, (start, stop) in zip(found, word_spans(text), strict=True):
        for vector, (a, b) in zip(vectors, spans, strict=True):
            row += vector * (max(a, start) < min(b, stop))
    return unit(found)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_conc_of_three_kinds_of_tokenizers_is_the_pooled_concatenation(
    combine, folders, static, pooling
):
    bert, roberta = str(folders("bert")), str(folders("roberta"))
    encoder = combine(bert, f"{roberta}::layers=0,2", static, pooling=pooling)
    vectors = encoder.encode(TEXTS)
    assert vectors.shape == (len(TEXTS), 16 + 16 + 5)
    for text, vector in zip(TEXTS, vectors, strict=True):
        if not text:
            assert not vector.any()
            continue
        words = np.hstack(
            [
                transformer_words(bert, text, [3]),
                transformer_words(roberta, text, [0, 2]),
                static_words(static, text),
            ]
        )
        expected = words.mean(axis=0) if pooling == "mean" else words.max(axis=0)
        np.testing.assert_allclose(vector, unit(expected), **CLOSE)


@pytest.mark.parametrize("method", ["conc", "svd"])
@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_a_loaded_folder_runs_without_torch_and_gives_the_same_vectors(
    combine, folders, static, monkeypatch, method, pooling
):
    bert = folders("bert")
    form = f"{bert}::layers=1,3"
    made = combine(form, static, method=method, pooling=pooling, texts=TEXTS * 3)
    # Enough for both engines; a piece that covers two words, and words that one source lacks.
    texts = [f"w{i % 40} {text} w{7 * i % 40}" for i in range(30) for text in TEXTS]
    expected = made.encode(texts)
    monkeypatch.setattr(Backbone, "run", None)
    loaded = Encoder.load("both", device="cpu")
    assert loaded.spec == made.spec
    assert loaded.spec.max_length == 64
    again = Encoder.from_spec(loaded.spec, device="cpu", dtype="float32")
    for part in (texts[:5], texts):
        np.testing.assert_allclose(loaded.encode(part), expected[: len(part)], **CLOSE)
        np.testing.assert_allclose(again.encode(part), expected[: len(part)], **CLOSE)


@pytest.mark.parametrize(
    "backend", ["numpy", pytest.param("openvino", marks=needs_openvino), "torch"]
)
@pytest.mark.parametrize("level", ["word", "sentence"])
def test_layer_choices_of_one_network_share_a_forward_pass(
    combine, folders, monkeypatch, level, backend
):
    bert = f"{folders('bert')}::backend={backend}"
    layers_of_passes = []

    def record(engine, layers_of):
        run = engine.run

        def recorded_run(*arguments):
            layers_of_passes.append(sorted(layers_of(*arguments)))
            return run(*arguments)

        monkeypatch.setattr(engine, "run", recorded_run)

    record(NumPyEngine, lambda self, *_: self._layers)
    record(OpenVINOEngine, lambda self, *_: self._layers)
    record(Backbone, lambda self, batch, layers, visit: layers)
    made = combine(bert, f"{bert}::lc:0,1", f"{bert}::top-bottom", level=level)
    loaded = Encoder.load("both", device="cpu")
    for encoder in (made, loaded):
        layers_of_passes.clear()
        vectors = encoder.encode(TEXTS)
        # All texts fit one batch; hidden state 2 is read by none of them.
        assert layers_of_passes == [[0, 1, 3]]
    if level == "sentence":
        forms = ("", "::lc:0,1", "::top-bottom")
        bert = folders("bert")
        alone = [unit(Encoder.load(f"{bert}{form}", device="cpu").encode(TEXTS)) for form in forms]
        np.testing.assert_allclose(vectors, unit(np.hstack(alone)), **CLOSE)


def test_meta_of_source_without_word_vectors_combines_sentence_vectors(combine, folders, static):
    bert = folders("bert12")
    for form in ("::sbert-wk", "::pooling=cls", "::head=yes"):
        encoder = combine(f"{bert}{form}", static, output=f"both{form[2:5]}")
        assert encoder.meta_parts().level == "sentence"
        alone = [
            unit(Encoder.load(one, device="cpu").encode(TEXTS)) for one in (f"{bert}{form}", static)
        ]
        np.testing.assert_allclose(encoder.encode(TEXTS), unit(np.hstack(alone)), **CLOSE)
    with pytest.raises(ConfigError, match="has no vectors of words"):
        combine(f"{bert}::sbert-wk", static, level="word")


def test_texts_are_cut_before_the_same_word_for_all_sources(combine, folders, static):
    encoder = combine(f"{folders('bert')}::max-length=12", folders("albert"), static)
    assert encoder.spec.max_length == 12
    text = "w1 zoo w2 w3 zoo zoo w4 w5 w6 w7"
    (cut,) = encoder.truncate([text])
    assert len(cut) <= 12
    assert text.startswith(cut.text + " ")
    # One word more would be too long for some source.
    longer = text[: text.find(" ", len(cut.text) + 1)]
    assert len(encoder.tokenize([longer])[0]) > 12
    with pytest.warns(UserWarning, match="1 of 1 texts are longer than the window of 12"):
        vector = encoder.encode([text])
    np.testing.assert_array_equal(vector, encoder.encode([cut.text]))
    with pytest.raises(ConfigError, match="at most 12, the smallest window"):
        Encoder.load("both::max-length=13")
    assert Encoder.load("both::max-length=9").spec.max_length == 9
    # A word that is longer than the window is cut inside.
    short = combine(f"{folders('bert')}::max-length=8", folders("roberta"), output="short")
    for text in ("a" * 40, "😀" * 40, "w1 " + "b" * 90):
        (cut,) = short.truncate([text])
        assert 0 < len(cut.text) < len(text)
        assert len(cut) <= 8


def test_prompts_are_those_of_each_source(combine, folders, static):
    bert = folders("bert")
    prompted = f"{bert}::query-prompt=w1 w2: ::passage-prompt=w3 "
    encoder = combine(prompted, static)
    for query in (False, True):
        alone = Encoder.load(prompted, device="cpu")
        (piece,) = encoder.tokenize(["w5 cat"], query=query)
        assert piece.readings[0] == alone.tokenize(["w5 cat"], query=query)[0]
        # Words of the prompt are none of the text's.
        assert len(piece.spans) == 2
        assert set(piece.aligned[0].words.tolist()) == {0, 1}
    assert not np.allclose(encoder.encode(["w5"]), encoder.encode(["w5"], query=True))


def test_settings_that_belong_to_the_sources_are_refused(combine, folders, static):
    combine(folders("bert"), static)
    for setting in ("pooling=cls", "layers=0", "static=sif", "query-prompt=x", "dtype=bfloat16"):
        with pytest.raises(ConfigError, match="whose sources have their own settings"):
            Encoder.load(f"both::{setting}")
    raw = Encoder.load("both::normalize=no", device="cpu").encode(TEXTS)
    np.testing.assert_allclose(unit(raw), Encoder.load("both", device="cpu").encode(TEXTS), **CLOSE)
    with pytest.raises(ConfigError, match="has no layers of its own"):
        Encoder.load("both").hidden_states(TEXTS)


OBJECT = {"sources": [{"encoder": "mine::max-length=9", "weights": "probed:0", "dimensions": 3}]}


class TestFolder:
    @pytest.fixture
    def both(self, combine, folders, static, tmp_path):
        combine(folders("bert"), "static")
        return tmp_path / "both"

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"pooling": "max"}, "another SHA-256"),
            ({"pooling": "sum"}, "found 'sum' as pooling"),
            ({"sources": []}, "another SHA-256"),
            ({"sources": [1]}, "expected what `retriever train meta` wrote"),
            (OBJECT, "its source 'mine' is a Python object"),
            (None, "another SHA-256"),
        ],
    )
    def test_an_altered_folder_is_refused(self, both, change, message):
        if change is None:
            content = bytearray((both / "projection.safetensors").read_bytes())
            content[-3] ^= 1
            (both / "projection.safetensors").write_bytes(content)
        else:
            settings = json.loads((both / "meta.json").read_text())
            (both / "meta.json").write_text(json.dumps(settings | change))
        with pytest.raises(ModelError, match=message):
            read_folder(both)

    def test_meta_folder_names_every_source_with_fingerprint(self, both, folders):
        assert {path.name for path in both.iterdir()} == {"meta.json", "projection.safetensors"}
        settings = json.loads((both / "meta.json").read_text())
        assert [source["encoder"] for source in settings["sources"]] == [
            f"{folders('bert')}::max-length=64",
            "static::static=average::max-length=512",
        ]
        assert settings["sources"][1]["fingerprint"] == Encoder.load("static").spec.fingerprint

    def test_meta_folder_finds_sources_beside_it_after_move(self, both, tmp_path, monkeypatch):
        before = Encoder.load("both").encode(TEXTS)
        (tmp_path / "moved").mkdir()
        for name in ("both", "static"):
            shutil.move(tmp_path / name, tmp_path / "moved" / name)
        monkeypatch.chdir("/")
        moved = tmp_path / "moved" / "both"
        np.testing.assert_array_equal(Encoder.load(str(moved)).encode(TEXTS), before)

    def test_a_source_that_is_missing_or_another_one_is_named(self, both):
        model = StaticModel.load("static")
        model.lexicon.vectors[0] += 1
        StaticModel(model.lexicon, "average", None, {}).save("static")
        with pytest.raises(EncoderMismatchError, match=r"its source static has changed: expected"):
            Encoder.load("both")
        shutil.rmtree("static")
        with pytest.raises(ModelError, match=r"both: its source static cannot be loaded: "):
            Encoder.load("both")

    def test_meta_output_replaces_only_meta_embeddings(self, both, combine, folders, tmp_path):
        combine(folders("bert"), "static", method="avg")
        assert read_folder(both).method == "avg"
        with pytest.raises(ConfigError, match=r"a meta-embedding's folder, found static\.json"):
            combine(folders("bert"), "both2", output="static")


def test_sources_are_two_or_more_and_no_meta_embeddings(combine, folders, static):
    bert = folders("bert")
    with pytest.raises(ConfigError, match="expected two or more, found 1"):
        combine(bert)
    combine(Encoder.load(bert, device="cpu"), static)
    assert read_folder(Path("both")).sources[0] == Encoder.load(bert, device="cpu").spec
    with pytest.raises(TypeError, match="expected text forms or Encoders, found <object"):
        combine(object(), static)
    with pytest.raises(ConfigError, match="is a meta-embedding itself"):
        combine("both", static, output="more")


def test_an_index_is_made_and_searched_with_it(combine, folders, static, tmp_path):
    short = f"{folders('bert')}::max-length=16"
    combine(short, static, method="svd", texts=TEXTS * 3)
    with Index.create(tmp_path / "i", model="both") as index:
        index.add([*TEXTS[:3], " ".join(f"w{number}" for number in range(30))])
        assert index.info()["passages"] > 4
        assert [source["weight"] for source in index.info()["encoder"]["meta"]["sources"]] == [1, 1]
        assert index.search("w1 w2 w3", mode="dense", k=1)[0].passage == "w1 w2 w3"
    combine(short, static, method="avg")
    for asked, refusal in (("both::layers=0", "layers=0 was"), ("both", "the model both with wei")):
        with pytest.raises(EncoderMismatchError, match=refusal):
            Index.open(tmp_path / "i", model=asked)
