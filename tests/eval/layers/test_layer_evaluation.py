"""`search_layers` as a Python API: what it accepts, refuses and returns."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from eval import LayerSearchSettings, Loading, read_pairs, read_sts, search_layers
from retriever.encoders import Encoder
from retriever.errors import ConfigError, SourceError
from tests.eval.qa.samples import made_set, write_set
from tests.eval.sentences.sentence_samples import write_pairs, write_sts

CPU = Loading(device="cpu")


def search_settings(model, **settings):
    return LayerSearchSettings(str(model), CPU, resamples=100, **settings)


@pytest.fixture(scope="module")
def model(tiny_models):
    return tiny_models["bert"]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return read_pairs([write_pairs(tmp_path_factory.mktemp("pairs") / "pairs.tsv", 40, 0)])


def questions(split):
    return made_set(split, count=8, pool=5, answered=7 / 8)


@pytest.mark.parametrize("form", ["", "::head=yes"])
def test_pairs_are_searched_like_their_file_block_by_block_and_encoded_once(
    model, pairs, tmp_path, monkeypatch, form
):
    path, steps, encoded = write_pairs(tmp_path / "pairs.tsv", 40, 0), {}, []
    loaded = search_layers(pairs, search_settings(f"{model}{form}"))
    assert loaded.held_out_data is None
    monkeypatch.setattr("eval.layers.evaluation._PAIRS_AT_ONCE", 7)
    encode = Encoder.encode_pieces
    monkeypatch.setattr(
        Encoder,
        "encode_pieces",
        lambda self, pieces, *done: encoded.extend(pieces) or encode(self, pieces, *done),
    )

    def progress(name, total):
        steps[name] = [total, 0]
        return lambda count: steps[name].__setitem__(1, steps[name][1] + count)

    # A bare string is one path.
    read = search_layers(str(path), search_settings(f"{model}{form}"), progress=progress)
    assert loaded.layer_report == read.layer_report
    assert (loaded.search_data.name, read.search_data.name) == ("pairs", str(path))
    assert len(encoded) == len({*pairs.left, *pairs.right})
    assert len(steps) == 2
    assert all(total == done for total, done in steps.values())


def test_the_encoder_of_the_result_has_the_vectors_that_were_searched(model, pairs):
    result = search_layers(pairs, search_settings(f"{model}::normalize=no"), test=pairs)
    layers = ",".join(map(str, result.layer_report.best.layers))
    assert result.encoder == f"{model}::normalize=no::lc:{layers}"
    encoder = Encoder.load(result.encoder, device="cpu")
    left, right = encoder.encode(pairs.left), encoder.encode(pairs.right)
    cosines = (left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    expected = scipy.stats.spearmanr(np.round(cosines, 6), pairs.gold)[0]
    assert result.layer_report.best.search == pytest.approx(expected, abs=1e-6)
    assert result.layer_report.best.held_out == result.layer_report.best.search


@pytest.mark.parametrize(
    ("protocol", "form"), [("given", "::head=yes"), ("paper", "::head=yes::pooling=max")]
)
def test_layer_search_applies_the_dense_head(model, pairs, form, protocol):
    settings = search_settings(f"{model}{form}", top=7, protocol=protocol, dev_size=15, shuffles=2)
    result = search_layers(pairs, settings)
    assert len(result.layer_report.top) == 7
    samples = [np.arange(len(pairs))]
    if protocol == "paper":
        samples = [np.random.default_rng([0, seed]).permutation(len(pairs))[:15] for seed in (0, 1)]
    for candidate in result.layer_report.top:
        encoder = Encoder.load(f"{model}{form}::lc:{','.join(map(str, candidate.layers))}")
        left, right = encoder.encode(pairs.left), encoder.encode(pairs.right)
        cosines = np.round((left * right).sum(axis=1), 6)
        correlations = [
            scipy.stats.spearmanr(cosines[rows], pairs.gold[rows])[0] for rows in samples
        ]
        assert candidate.search == pytest.approx(np.mean(correlations), abs=1e-6)
    same = f"{model}{form}::lc:{','.join(map(str, result.layer_report.best.layers))}"
    assert Encoder.load(result.encoder).spec == Encoder.load(same).spec


def test_the_papers_protocol_merges_all_splits_of_a_similarity_test(model, tmp_path):
    folder = write_sts(tmp_path / "pairs")
    task = read_sts(folder)
    everything = task.everything()
    parts = [task.train, task.dev, *(subset.pairs for subset in task.subsets)]
    assert len(everything) == sum(len(part) for part in parts if part is not None)
    settings = search_settings(model, protocol="paper", dev_size=10, shuffles=2)
    result = search_layers(folder, settings)
    assert result.search_data.units == len(everything)
    assert result.layer_report == search_layers(everything, settings).layer_report


def test_loaded_questions_are_searched_and_tested(model):
    result = search_layers(
        questions("dev"), search_settings(model, objective="RR"), test=questions("test")
    )
    assert (result.objective, result.unit) == ("RR", "questions")
    assert result.search_data.units == 7
    assert result.held_out_data.name == "made (test)"
    assert "left out: questions without a relevant passage" in result.text()
    with pytest.raises(SourceError, match="found a whole corpus to rank"):
        search_layers(replace(questions("dev"), corpus=("corpus",)), search_settings(model))


@pytest.mark.parametrize(
    ("data", "test", "settings", "message"),
    [
        ("pairs", None, {"split": "dev"}, "split: it names a split of a folder"),
        ("pairs", None, {"test_split": "test"}, "test-split: it names a split of a folder"),
        ("pairs", None, {"objective": "AP"}, "expected spearman or pearson"),
        ("questions", None, {"test_split": "test"}, "load questions to test on"),
        ("questions", "pairs", {}, "test: it names a file of scored pairs"),
        ("pairs", None, {"protocol": "paper", "test_split": "x"}, "test-split: it names a split"),
        ("pairs", "pairs", {"protocol": "paper"}, "paper merges and divides scored pairs"),
        ("pairs", None, {"protocol": "paper", "dev_size": 39}, "2 to 38 of the 40 pairs, found 39"),
        ("pairs", None, {"protocol": "paper"}, "2 to 38 of the 40 pairs, found 350"),
        ("questions", None, {"objective": "pearson"}, "expected a measure of rankings"),
        ("questions", None, {"protocol": "paper"}, "paper merges and divides scored pairs"),
    ],
)
def test_settings_that_do_not_fit_the_data_are_refused(model, pairs, data, test, settings, message):
    data_sets = {"pairs": pairs, "questions": questions("dev"), None: None}
    with pytest.raises(ConfigError, match=message):
        search_layers(data_sets[data], search_settings(model, **settings), test=data_sets[test])


def test_layer_search_of_truncated_dimensions_is_refused(model, pairs):
    with pytest.raises(ConfigError, match="the search compares whole vectors"):
        search_layers(pairs, search_settings(f"{model}::dimensions=4"))


def test_held_out_data_without_overlap_or_with_a_warning(model, tmp_path):
    path, part = tmp_path / "pairs.tsv", tmp_path / "part.tsv"
    path.write_text("score\tsentence1\tsentence2\n1\tw1\tw2\n2\tw3\tw4\n3\tw5\tw5\n")
    part.write_text("score\tsentence1\tsentence2\n2\tw3\tw4\n1\tw1\tw2\n")
    folder = write_set(tmp_path / "set", made_set("dev"), made_set("test"))
    for data, settings, test, overlap in (
        (path, {}, path, r"\S+pairs\.tsv again"),
        (path, {}, part, r"\S+part\.tsv again"),
        (folder, {"test_split": "dev"}, None, "dev"),
    ):
        with pytest.raises(ConfigError, match=f"found {overlap}"):
            search_layers(data, search_settings(model, **settings), test=test)
