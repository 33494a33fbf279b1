"""Ranking question sets with each system, through the Python API."""

from dataclasses import replace

import numpy as np
import pytest

from eval import (
    QASettings,
    Question,
    QuestionSet,
    QuestionSettings,
    fit_reranker,
    rank_systems,
    read_run,
    write_run,
)
from eval.qa.systems import HeadPlan
from retriever import Document, Index
from retriever.encoders import EncoderSettings
from retriever.errors import BadInputError, ConfigError, EncoderMismatchError, ModelError
from retriever.search import FusionSettings, SearchSettings
from retriever.training import HeadSettings, HeadTrainingSettings
from tests.eval.qa.samples import made_set, runs_of, without_pools

QUICK = QASettings(head=HeadPlan(training=HeadTrainingSettings(epochs=3)), seeds=2)
SPLITS = {split: made_set(split, answered=0.8) for split in ("train", "dev", "test")}


@pytest.fixture(autouse=True)
def _fake(fake_encoder):
    pass


def rank(systems, questions=SPLITS, settings=QUICK, **options):
    return rank_systems(questions, systems, settings, **options)


def run_of(result, name):
    """Return the run of a system's first seed."""
    return next(runs_of(system)[0] for system in result.systems if system.name == name)


class TestPools:
    @pytest.mark.parametrize("text", ["bilinear", "bilinear:mlp", "uv", "uv:mlp", "concat:mlp"])
    def test_heads_are_trained_once_for_each_seed(self, text):
        (system,) = rank(text).systems
        assert len(system.scores) == len(system.curves) == 2
        assert all(2 <= len(curve) <= 4 for curve in system.curves)
        assert "dev AP" in system.note

    def test_head_is_at_least_as_good_as_cosine_on_its_dev_split(self):
        settings = replace(QUICK, split="dev", seeds=1, measures=("AP",))
        result = rank("cosine,bilinear", settings=settings)
        cosine, head = (
            result.comparison.scores["AP"][name].value for name in ("cosine", "bilinear")
        )
        assert head >= cosine - 1e-9
        assert head == pytest.approx(max(result.systems[1].curves[0]), abs=1e-9)

    def test_splits_are_read_only_when_a_system_needs_them(self, tmp_path, monkeypatch):
        read_splits = []

        def read(path, split, **options):
            read_splits.append(split)
            return SPLITS[split]

        monkeypatch.setattr("eval.qa.resources.read_question_set", read)
        for systems, splits in (
            ("bm25,cosine,hybrid,rank-bm25", ["test"]),
            (["hybrid:tuned,cosine", "hybrid:tuned@other"], ["test", "dev"]),
            ("uv,hybrid:tuned", ["test", "train", "dev"]),
        ):
            read_splits.clear()
            rank(systems, tmp_path)
            assert read_splits == splits
        read_splits.clear()
        rank("uv", tmp_path, replace(QUICK, data=QuestionSettings(dev_share=0.25)))
        assert read_splits == ["test", "train"]

    def test_texts_longer_than_the_window_are_reported_once(self, fake_encoder):
        short = replace(fake_encoder.spec.settings, max_length=8)
        fake_encoder.spec = replace(fake_encoder.spec, settings=short)
        messages = []
        result = rank("cosine,hybrid", notify=messages.append)
        assert len(messages) == 1
        assert "window of 8 tokens" in messages[0]
        remark = messages[0].removeprefix("warning: ")
        assert remark in result.text()
        assert result.to_json()["remarks"] == [remark] != messages
        # Of the dev split, on which a weight is chosen, the report says nothing.
        assert len(rank("hybrid:tuned").to_json()["remarks"]) == 1
        assert rank("bm25").to_json()["remarks"] == []

    def test_run_file_is_ranked_unchanged_and_missing_questions_count_zero(self, tmp_path):
        run = rank("bm25").systems[0].run()
        whole, part = (str(tmp_path / name) for name in ("whole.run", "part.run"))
        write_run(whole, run, "theirs")
        write_run(part, {query: run[query] for query in list(run)[:5]}, "theirs")
        result = rank(["bm25", whole, part])
        assert run_of(result, whole) == read_run(whole) == run_of(result, "bm25")
        assert result.comparison.missing == {"bm25": 0, whole: 0, part: 5}
        ours, theirs, fewer = result.comparison.values["AP"]
        np.testing.assert_array_equal(theirs, ours)
        np.testing.assert_array_equal(fewer[:5], ours[:5])
        assert not fewer[5:].any()

    @pytest.mark.parametrize(
        ("systems", "changed", "error", "message"),
        [
            ("magic", {}, ConfigError, "expected bm25, rank-bm25, cosine"),
            ("bm25", {"baseline": "cosine"}, ConfigError, "expected one of the systems"),
            ("bm25", {"measures": ("magic",)}, ConfigError, "unknown measure"),
            ("bm25", {"split": "none"}, ConfigError, "expected one of train, dev, test, x"),
            ("bm25", {"data": QuestionSettings(index="i")}, ConfigError, "leave out --index"),
            ("uv", {"data": QuestionSettings(train_split="x")}, BadInputError, "--train-split"),
        ],
    )
    def test_bad_input_is_refused_in_one_line(self, systems, changed, error, message):
        splits = {**SPLITS, "x": made_set("train", answered=0)}
        with pytest.raises(error) as caught:
            rank(systems, splits, replace(QUICK, **changed))
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


def test_judgments_of_documents_outside_the_corpus_are_counted(tmp_path):
    whole = without_pools(made_set(), tmp_path / "corpus.jsonl")
    data = QuestionSettings(index=tmp_path / "index")
    remark = "1 of 12 relevant judgments are of documents that the corpus lacks"
    for question_set, settings in ((made_set(), QASettings()), (whole, QASettings(data=data))):
        first, *rest = question_set.questions
        questions = (replace(first, grades={"d-": 1}), *rest)
        assert remark not in rank_systems(question_set, "bm25", settings).text()
        assert (
            remark
            in rank_systems(replace(question_set, questions=questions), "bm25", settings).text()
        )
        with pytest.raises(BadInputError, match=r"1 of 1 relevant judgments .* such as 'd-'"):
            rank_systems(replace(question_set, questions=questions[:1]), "bm25", settings)


def test_saved_head_ranks_like_the_trained_one_and_only_with_its_encoder(
    tmp_path, fake_encoder, monkeypatch
):
    address = "http://127.0.0.1:9/v1"
    behind = EncoderSettings(model=f"{address}#m", max_length=32)
    settings = replace(QUICK, head=QUICK.head.of("uv", "linear"), seeds=1)
    fitted = fit_reranker(SPLITS, tmp_path / "uv", settings)
    assert fitted.folder == tmp_path / "uv"
    result = rank(["uv", str(tmp_path / "uv")], settings=replace(QUICK, seeds=1))
    trained, saved = (system.scores[0] for system in result.systems)
    np.testing.assert_allclose(saved, trained, atol=1e-6)
    spec = fake_encoder.spec
    fake_encoder.spec = replace(spec, weights="1" * 64)
    with pytest.raises(EncoderMismatchError):
        rank(str(tmp_path / "uv"))
    # Nothing is sent to a URL that nobody named.
    fake_encoder.spec = replace(spec, settings=behind)
    fit_reranker(SPLITS, tmp_path / "remote", settings)
    loads = fake_encoder.loads
    with pytest.raises(ModelError, match="only if you ask for it"):
        rank(str(tmp_path / "remote"))
    assert fake_encoder.loads == loads
    monkeypatch.setenv("RETRIEVER_URLS", address)
    rank(str(tmp_path / "remote"))


class TestCorpora:
    """Sets without pools, which are ranked through an index of their corpus."""

    @pytest.fixture
    def splits(self, tmp_path):
        """Two splits with equal ids of questions, over one corpus."""
        passages = SPLITS["test"].passages
        corpus = without_pools(SPLITS["test"], tmp_path / "corpus.jsonl").corpus
        splits = {}
        for split in ("train", "dev", "test"):
            questions = tuple(
                replace(
                    question,
                    candidates=(),
                    text=f"{passages[max(question.grades)]} {question.text}",
                )
                for question in made_set(split).questions
            )
            splits[split] = QuestionSet("made", split, questions, {}, corpus=corpus)
        return splits

    @pytest.fixture
    def settings(self, tmp_path):
        data = QuestionSettings(index=tmp_path / "index", depth=7)
        return replace(QUICK, data=data, seeds=1)

    def test_systems_over_a_corpus_rank_like_index_search(self, splits, settings):
        result = rank("bm25,cosine,hybrid,hybrid:0.25,hybrid:rrf", splits, settings)
        searches = {
            "bm25": SearchSettings(mode="bm25"),
            "cosine": SearchSettings(mode="dense"),
            "hybrid": SearchSettings(),
            "hybrid:0.25": SearchSettings(fusion=FusionSettings(alpha=0.25)),
            "hybrid:rrf": SearchSettings(fusion=FusionSettings("rrf")),
        }
        queries = splits["test"].questions
        with Index.open(settings.data.index) as index:
            for system in result.systems:
                search = replace(searches[system.name], k=7, depth=7)
                hits = index.search_many([query.text for query in queries], search)
                expected = [{hit.id: hit.score for hit in listed} for listed in hits]
                (run,) = runs_of(system)
                assert [run.get(query.id, {}) for query in queries] == expected

    def test_a_tuned_hybrid_searches_each_split_once(self, splits, settings, monkeypatch):
        """And not the hits of the other split, whose questions have the same ids."""
        searched_texts = []
        original = Index.candidates

        def candidates(self, texts, *arguments):
            searched_texts.append(tuple(texts))
            return original(self, texts, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(Index, "candidates", candidates)
            patch.setattr(Index, "search_many", lambda *_: pytest.fail("pools are not needed"))
            result = rank("hybrid:tuned,hybrid", splits, settings)
        texts = [
            tuple(question.text for question in splits[split].questions)
            for split in ("dev", "test")
        ]
        assert searched_texts == texts
        alpha = result.systems[0].note.split()[1].rstrip(",")
        (again,) = rank(f"hybrid:{alpha}", splits, settings).systems
        assert runs_of(again) == runs_of(result.systems[0])

    def test_rank_bm25_ranks_the_whole_corpus(self, splits, settings):
        result = rank("bm25,rank-bm25", splits, settings)
        assert "the first 7 hits of each question are ranked and measured" in result.text()
        ours, theirs = (runs_of(system)[0] for system in result.systems)
        assert {len(run) for run in theirs.values()} == {7}
        for query in ours:
            best, other = (max(run[query], key=run[query].get) for run in (ours, theirs))
            assert best == other

    def test_index_with_missing_or_changed_documents_is_completed(self, splits, settings):
        expected = rank("bm25,cosine", splits, settings)
        part = replace(settings, data=replace(settings.data, index=settings.data.index / "../part"))
        texts = dict(list(SPLITS["test"].passages.items())[::3])
        with Index.create(part.data.index) as index:
            index.add(Document(id_, text) for id_, text in texts.items())
            index.add([Document(next(iter(texts)), "something else")])
        messages = []
        result = rank("bm25,cosine", splits, part, notify=messages.append)
        changes = "20 documents of the corpus were missing and 1 had changed"
        assert messages == [f"note: {part.data.index}: {changes}; they are indexed now"]
        for system, other in zip(result.systems, expected.systems, strict=True):
            assert runs_of(system) == [
                {query: pytest.approx(scores, abs=1e-6) for query, scores in run.items()}
                for run in runs_of(other)
            ]
        rank("bm25", splits, part, notify=messages.append)
        assert len(messages) == 1

    def test_documents_without_text_are_left_out_and_counted(self, splits, settings):
        with splits["test"].corpus[0].open("a") as file:
            file.write('{"id": "e1", "text": ""}\n{"id": "e2", "text": " "}\n')
        messages = []
        rank("bm25", splits, settings, notify=messages.append)
        assert messages == ["warning: 2 documents of the corpus have no text and are left out"]
        with Index.open(settings.data.index) as index:
            assert len(index) == 30

    def test_index_with_foreign_documents_is_refused_unchanged(self, splits, settings):
        with Index.create(settings.data.index) as index:
            index.add([Document("d0", "one"), Document("other", "two")])
        message = "found 1 of its 2 documents that are not among the 30 of the corpus"
        with pytest.raises(ConfigError, match=message):
            rank("bm25", splits, settings)
        with Index.open(settings.data.index) as index:
            assert len(index) == 2

    def test_a_set_without_pools_needs_an_index(self, splits, settings):
        with pytest.raises(ConfigError, match="--index FOLDER"):
            rank("bm25", splits)

    def test_another_encoder_than_that_of_the_index_is_refused_before_training(
        self, splits, settings
    ):
        stages = []

        def progress(stage, total):
            stages.append(stage)
            return lambda done: None

        message = "a second run, with --model other and an --index of its own"
        with pytest.raises(ConfigError, match=message):
            rank(["bilinear", "cosine@other"], splits, settings, progress=progress)
        assert stages == ["indexing passages"]

    def test_heads_rerank_the_hits_of_a_hybrid_search(self, splits, settings):
        (system,) = rank("bilinear", splits, settings).systems
        with Index.open(settings.data.index) as index:
            for pool in system.pools:
                hits = index.search(pool.text, SearchSettings(k=7, depth=7))
                assert set(pool.candidates) == {hit.id for hit in hits}


class TestQueryMaps:
    """Questions that name passages by other words, which a map can learn and the cosine cannot."""

    @pytest.fixture
    def splits(self, fake_encoder):
        """Splits in which the passage "b3" answers the question "a3", and so on up to 12."""
        passages = {f"p{n}": f"b{n}" for n in range(12)}
        splits = {}
        for split in ("train", "dev", "test"):
            questions = tuple(
                Question(
                    f"{split}-{n}-{again}", f"a{n}", tuple(sorted(passages)[::-1]), {f"p{n}": 1}
                )
                for n in range(12)
                for again in range(3)
            )
            splits[split] = QuestionSet("named", split, questions, passages)
        return splits

    @pytest.fixture
    def plan(self):
        return replace(QUICK, head=HeadPlan(HeadSettings(), HeadTrainingSettings(30)), seeds=1)

    def test_query_map_that_gains_on_held_out_questions_is_used(self, splits, plan, tmp_path):
        fitted = fit_reranker(splits, tmp_path / "map", plan)
        trial = fitted.to_json()["query_map"]
        assert trial["better"]
        assert trial["questions"] == 36
        assert "--query-map takes it" in fitted.text()
        before, after = (
            rank("cosine,hybrid", splits, replace(plan, query_map=query_map))
            for query_map in (None, tmp_path / "map")
        )
        (saved,) = rank(str(tmp_path / "map"), splits, plan).systems
        for system in ("cosine", "hybrid"):
            old, new = (result.comparison.scores["AP"][system].value for result in (before, after))
            assert new > old
        # In pools a search with the map ranks as the head does.
        assert run_order(after.systems[0]) == run_order(saved)

    def test_query_map_without_gain_is_refused(self, splits, plan, tmp_path):
        chance = np.random.default_rng(0)
        train = tuple(
            replace(question, grades={f"p{chance.integers(12)}": 1})
            for question in splits["train"].questions
        )
        splits["train"] = replace(splits["train"], questions=train)
        fitted = fit_reranker(splits, tmp_path / "map", plan)
        assert not fitted.trial["better"]
        assert "refuses" in fitted.text()
        with pytest.raises(ConfigError, match="--rerank"):
            rank("cosine", splits, replace(plan, query_map=tmp_path / "map"))

    def test_query_map_improves_search_of_a_corpus(self, splits, plan, tmp_path):
        bare = {
            split: without_pools(questions, tmp_path / "corpus.jsonl")
            for split, questions in splits.items()
        }
        over = replace(plan, data=QuestionSettings(index=tmp_path / "index"))
        fit_reranker(bare, tmp_path / "map", over)
        pools = fit_reranker(splits, tmp_path / "pools", plan).trial
        assert pools["better"]
        old, new = (
            rank("cosine,hybrid", bare, replace(over, query_map=query_map)).comparison.scores["AP"]
            for query_map in (None, tmp_path / "map")
        )
        assert new["cosine"].value > old["cosine"].value
        assert new["hybrid"].value > old["hybrid"].value


def run_order(system):
    return {query: [id_ for id_, _ in ranked] for query, ranked in system.run().items()}
