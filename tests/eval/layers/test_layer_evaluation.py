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


def asked(model, **settings):
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
    loaded = search_layers(pairs, asked(f"{model}{form}"))
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
    read = search_layers(str(path), asked(f"{model}{form}"), progress=progress)
    assert loaded.found == read.found
    assert (loaded.search_data.name, read.search_data.name) == ("pairs", str(path))
    assert len(encoded) == len({*pairs.left, *pairs.right})
    assert len(steps) == 2
    assert all(total == done for total, done in steps.values())


def test_the_encoder_of_the_result_has_the_vectors_that_were_searched(model, pairs):
    found = search_layers(pairs, asked(f"{model}::normalize=no"), test=pairs)
    layers = ",".join(map(str, found.found.best.layers))
    assert found.encoder == f"{model}::normalize=no::lc:{layers}"
    encoder = Encoder.load(found.encoder, device="cpu")
    left, right = encoder.encode(pairs.left), encoder.encode(pairs.right)
    cosines = (left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    expected = scipy.stats.spearmanr(np.round(cosines, 6), pairs.gold)[0]
    assert found.found.best.search == pytest.approx(expected, abs=1e-6)
    assert found.found.best.held_out == found.found.best.search


@pytest.mark.parametrize(
    ("protocol", "form"), [("given", "::head=yes"), ("paper", "::head=yes::pooling=max")]
)
def test_a_head_is_searched_with(model, pairs, form, protocol):
    settings = asked(f"{model}{form}", top=7, protocol=protocol, dev_size=15, shuffles=2)
    result = search_layers(pairs, settings)
    assert len(result.found.top) == 7
    searched = [np.arange(len(pairs))]
    if protocol == "paper":
        searched = [np.random.default_rng([0, one]).permutation(len(pairs))[:15] for one in (0, 1)]
    for one in result.found.top:
        encoder = Encoder.load(f"{model}{form}::lc:{','.join(map(str, one.layers))}")
        left, right = encoder.encode(pairs.left), encoder.encode(pairs.right)
        cosines = np.round((left * right).sum(axis=1), 6)
        found = [scipy.stats.spearmanr(cosines[rows], pairs.gold[rows])[0] for rows in searched]
        assert one.search == pytest.approx(np.mean(found), abs=1e-6)
    same = f"{model}{form}::lc:{','.join(map(str, result.found.best.layers))}"
    assert Encoder.load(result.encoder).spec == Encoder.load(same).spec


def test_the_papers_protocol_merges_all_splits_of_a_similarity_test(model, tmp_path):
    folder = write_sts(tmp_path / "pairs")
    task = read_sts(folder)
    everything = task.everything()
    parts = [task.train, task.dev, *(subset.pairs for subset in task.subsets)]
    assert len(everything) == sum(len(part) for part in parts if part is not None)
    settings = asked(model, protocol="paper", dev_size=10, shuffles=2)
    found = search_layers(folder, settings)
    assert found.search_data.units == len(everything)
    assert found.found == search_layers(everything, settings).found


def test_loaded_questions_are_searched_and_tested(model):
    found = search_layers(questions("dev"), asked(model, objective="RR"), test=questions("test"))
    assert (found.objective, found.unit) == ("RR", "questions")
    assert found.search_data.units == 7
    assert found.held_out_data.name == "made (test)"
    assert "left out: questions without a relevant passage" in found.text()
    with pytest.raises(SourceError, match="found a whole corpus to rank"):
        search_layers(replace(questions("dev"), corpus=("corpus",)), asked(model))


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
    known = {"pairs": pairs, "questions": questions("dev"), None: None}
    with pytest.raises(ConfigError, match=message):
        search_layers(known[data], asked(model, **settings), test=known[test])


def test_a_search_for_a_part_of_the_vectors_is_refused(model, pairs):
    with pytest.raises(ConfigError, match="the search compares whole vectors"):
        search_layers(pairs, asked(f"{model}::dimensions=4"))


def test_what_was_searched_on_is_not_held_out(model, tmp_path):
    path, part = tmp_path / "pairs.tsv", tmp_path / "part.tsv"
    path.write_text("score\tsentence1\tsentence2\n1\tw1\tw2\n2\tw3\tw4\n3\tw5\tw5\n")
    part.write_text("score\tsentence1\tsentence2\n2\tw3\tw4\n1\tw1\tw2\n")
    folder = write_set(tmp_path / "set", made_set("dev"), made_set("test"))
    for data, settings, test, found in (
        (path, {}, path, r"\S+pairs\.tsv again"),
        (path, {}, part, r"\S+part\.tsv again"),
        (folder, {"test_split": "dev"}, None, "dev"),
    ):
        with pytest.raises(ConfigError, match=f"found {found}; nothing is held out of it"):
            search_layers(data, asked(model, **settings), test=test)
