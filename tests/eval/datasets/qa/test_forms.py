from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from eval.datasets.qa.forms import FORMS, detect_form, read_question_set
from retriever.errors import ConfigError, SourceError
from tests.eval.datasets.qa.samples import OWN, SAMPLES, SPLITS, write

# Files of other splits.
UNREAD = {
    ("insuranceqa-v1", "question.train.token_idx.label"),
    ("insuranceqa-v1", "question.test1.label.token_idx.pool"),
    ("insuranceqa-v1", "question.test2.label.token_idx.pool"),
    ("beir", "qrels/train.tsv"),
    *(
        ("insuranceqa-v2", name)
        for name in SAMPLES["insuranceqa-v2"]
        if "solr" in name and not name.endswith("500.pool.solr.valid.encoded")
    ),
}
# The whole corpus is indexed, not read here.
CORPORA = {("beir", "corpus.jsonl"), ("msmarco", "collection.tsv"), ("trec", "corpus.jsonl")}
READ = [
    (form, name)
    for form, files in SAMPLES.items()
    for name in files
    if (form, name) not in UNREAD | CORPORA
]


def same(one, other):
    """Whether two sets are equal but for the folder they come from."""
    return replace(one, name="", corpus=()) == replace(other, name="", corpus=())


def read(folder, kind, **options):
    return read_question_set(folder, SPLITS[kind], **options)


@pytest.mark.parametrize("form", SAMPLES)
def test_each_form_is_recognised_by_its_files(tmp_path, form):
    write(tmp_path, SAMPLES[form])
    assert detect_form(tmp_path) == form
    assert read(tmp_path, form) == read(tmp_path, form, form=form)


def test_every_form_has_a_sample():
    assert set(SAMPLES) == set(FORMS)


@pytest.mark.parametrize("form", SAMPLES)
def test_gzip_line_ends_and_byte_order_marks_change_nothing(tmp_path, form):
    plain = read(write(tmp_path / "plain", SAMPLES[form]), form)
    windows = {
        name: "\ufeff" + content.replace("\n", "\r\n") for name, content in SAMPLES[form].items()
    }
    assert same(read(write(tmp_path / "windows", windows), form), plain)
    packed = {f"{name}.gz": content for name, content in SAMPLES[form].items()}
    assert same(read(write(tmp_path / "packed", packed), form), plain)


@pytest.mark.parametrize(("form", "name"), READ)
def test_an_empty_file_is_named(tmp_path, form, name):
    folder = write(tmp_path, {**SAMPLES[form], name: ""})
    with pytest.raises(SourceError) as caught:
        read(folder, form)
    assert str(caught.value).startswith(str(folder))
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("form", "name"), READ)
def test_bytes_that_are_not_utf8_are_named(tmp_path, form, name):
    content = SAMPLES[form][name].encode() + b"caf\xe9\n"
    folder = write(tmp_path, {**SAMPLES[form], name: content})
    with pytest.raises(SourceError, match=f"{re.escape(name)}.*UTF-8"):
        read(folder, form)


@pytest.mark.parametrize("form", SAMPLES)
def test_a_split_that_is_not_there_is_told_from_those_that_are(tmp_path, form):
    write(tmp_path, SAMPLES[form])
    with pytest.raises(SourceError, match=f"one of the splits .*{SPLITS[form]}.*, found 'fold9'"):
        read_question_set(tmp_path, "fold9")


@pytest.mark.parametrize("form", SAMPLES)
def test_a_form_that_is_named_says_which_of_its_files_are_missing(tmp_path, form):
    with pytest.raises(SourceError) as caught:
        read_question_set(tmp_path, "test", form=form)
    for group in FORMS[form].needs:
        assert f"no {' or '.join(group)}" in str(caught.value)


def test_a_folder_of_no_form_is_told_what_the_nearest_ones_lack(tmp_path):
    with pytest.raises(SourceError, match="found none of them; the forms are own, wikipassageqa"):
        detect_form(tmp_path)
    write(tmp_path, {name: OWN[name] for name in ("corpus.jsonl", "queries.dev.jsonl")})
    with pytest.raises(SourceError) as caught:
        detect_form(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: expected the files of a question set, found only some: for own it has no "
        "qrels.*.tsv; add what is missing"
    )


def test_what_is_no_folder_and_what_is_no_form_is_refused(tmp_path):
    with pytest.raises(SourceError, match="expected a folder of questions, found none"):
        read_question_set(tmp_path / "nothing", "dev")
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match="expected a folder of questions, found a file"):
        detect_form(tmp_path / "file")
    with pytest.raises(ConfigError, match=r"form: expected one of own, .*, found squad"):
        read_question_set(tmp_path, "dev", form="squad")


@pytest.mark.parametrize("form", [name for name in SAMPLES if not name.endswith(("v2", "trecqa"))])
def test_a_set_without_variants_says_so(tmp_path, form):
    write(tmp_path, SAMPLES[form])
    with pytest.raises(ConfigError, match="variant: this set has only one, found clean"):
        read(tmp_path, form, variant="clean")


@pytest.mark.parametrize("form", SAMPLES)
def test_pools_are_descending_and_of_known_passages_or_the_corpus_is_ranked(tmp_path, form):
    found = read(write(tmp_path, SAMPLES[form]), form)
    for question in found.questions:
        assert list(question.candidates) == sorted(set(question.candidates), reverse=True)
        assert bool(question.candidates) != bool(found.corpus)
        assert set(question.candidates) <= set(found.passages)
    assert len({question.id for question in found.questions}) == len(found) > 0


def test_layers_are_searched_on_any_form_that_has_pools(retriever, tiny_models, tmp_path):
    model = ("--model", tiny_models["bert"])
    sets = {form: write(tmp_path / form, SAMPLES[form]) for form in ("wikiqa", "beir")}
    outcome = retriever("tune", "layers", sets["wikiqa"], *model, "--json")
    assert outcome.code == 0, outcome.err
    source = json.loads(outcome.out)["search_data"]
    assert (source["units"], source["left_out"]) == (1, 1)
    outcome = retriever("tune", "layers", sets["beir"], *model, "--split", "test")
    assert (outcome.code, outcome.out) == (2, "")
    assert "found a whole corpus to rank; add a file candidates.test.jsonl" in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_the_command_line_refuses_a_malformed_file_in_one_line(retriever, tiny_models, tmp_path):
    broken = SAMPLES["wikiqa"]["WikiQA-dev.tsv"] + "Q9\n"
    folder = write(tmp_path, {**SAMPLES["wikiqa"], "WikiQA-dev.tsv": broken})
    outcome = retriever("tune", "layers", folder, "--model", tiny_models["bert"])
    assert (outcome.code, outcome.out) == (2, "")
    assert "WikiQA-dev.tsv:5: expected 7 cells separated by tabs" in outcome.err
    assert len(outcome.err.splitlines()) == 1
