"""The notebook `examples/search_and_measure.ipynb` runs, and its stored outputs are small.

After a change, `jupyter nbconvert --to notebook --execute --inplace` stores new outputs.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import re
import statistics
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOK = EXAMPLES / "search_and_measure.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
CODE_CELLS = [cell for cell in CELLS if cell["cell_type"] == "code"]
OUTPUTS = [output for cell in CODE_CELLS for output in cell["outputs"]]


class Execution(NamedTuple):
    """What is left after the last cell."""

    variables: dict[str, Any]
    # Value of the last line of each cell that ends with an expression, as a notebook shows it.
    values: list[Any]
    printed: str


def parse(cell) -> ast.Module:
    """Return the code of a cell; lines that begin with % are for the notebook's program alone."""
    return ast.parse("".join(line for line in cell["source"] if not line.startswith("%")))


@pytest.fixture(scope="module")
def execution() -> Execution:
    """Run every cell in order, in one namespace."""
    pytest.importorskip("layer_retriever_minilm")
    pytest.importorskip("matplotlib")
    variables: dict[str, Any] = {"__name__": "__main__"}
    values = []
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as output:
        patch.syspath_prepend(EXAMPLES)
        for code in map(parse, CODE_CELLS):
            last = code.body.pop() if isinstance(code.body[-1], ast.Expr) else None
            exec(compile(code, NOTEBOOK.name, "exec"), variables)
            if last is None:
                continue
            value = eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), variables)
            # An index that is closed later has no words to mark.
            values.append(value._repr_html_() if hasattr(value, "_repr_html_") else value)
    return Execution(variables, values, output.getvalue())


def test_search_of_the_notebook_shows_an_answer_with_its_words_marked(execution):
    hits = execution.variables["hits"]
    answers = execution.variables["answers"]["ask for a password without showing it"]
    assert {hit.id for hit in hits} & {*answers}
    (table,) = (value for value in execution.values if "getpass" in str(value))
    assert table.count("<tr>") == 1 + len(hits)
    assert "<mark>password</mark>" in table


def test_filter_of_the_notebook_leaves_one_module(execution):
    hits = execution.variables["functions"]
    assert hits[0].id == "shutil.rmtree"
    assert {hit.metadata["module"] for hit in hits} == {"shutil"}


def test_heat_map_of_the_notebook_has_a_row_and_a_column_for_each_hidden_state(execution):
    layers = execution.variables["layers"]
    assert layers.mean.shape == (7, 7)
    assert layers.mean.diagonal() == pytest.approx(1)
    (image,) = execution.variables["figure"].axes[0].images
    assert image.get_array().shape == (7, 7)


def reciprocal_rank(scores, grades) -> float:
    """Return 1 / the rank of the first answer, with ties in trec_eval's order."""
    ranking = sorted(scores, key=lambda id_: (np.float32(scores[id_]), id_), reverse=True)
    return next((1 / rank for rank, id_ in enumerate(ranking, start=1) if id_ in grades), 0)


def test_every_interval_of_the_notebook_contains_the_mean_of_its_run(execution):
    comparison = execution.variables["comparison"]
    qrels = execution.variables["qrels"]
    corpus_ids = {document["id"] for document in execution.variables["documents"]}
    assert corpus_ids >= {id_ for grades in qrels.values() for id_ in grades}
    for mode, run in execution.variables["runs"].items():
        score = comparison.scores["RR@10"][mode]
        values = [reciprocal_rank(run[question], grades) for question, grades in qrels.items()]
        assert score.value == pytest.approx(statistics.mean(values))
        assert 0 < score.low < score.value < score.high < 1
        assert f"{score.low:.4f} to {score.high:.4f}" in execution.printed


def test_notebook_leaves_no_index_behind(execution):
    assert not Path(execution.variables["folder"].name).exists()


def test_every_code_cell_follows_a_sentence_and_has_the_outputs_of_one_run():
    assert [cell["cell_type"] for cell in CELLS[1:]] == ["markdown", "code"] * len(CODE_CELLS)
    assert [cell["execution_count"] for cell in CODE_CELLS] == [*range(1, len(CODE_CELLS) + 1)]
    for cell in CODE_CELLS[:-1]:
        *_, last = parse(cell).body
        # A loop shows nothing.
        assert bool(cell["outputs"]) == isinstance(last, ast.Expr)
    assert CODE_CELLS[-1]["outputs"] == []


def test_stored_outputs_hold_hits_one_small_picture_and_neither_errors_nor_paths():
    assert {output["output_type"] for output in OUTPUTS} == {"execute_result", "stream"}
    data = [output["data"] for output in OUTPUTS if "data" in output]
    assert sum("<mark>" in "".join(value.get("text/html", "")) for value in data) == 2
    (picture,) = (value["image/png"] for value in data if "image/png" in value)
    assert len(base64.b64decode(picture)) < 60_000
    assert NOTEBOOK.stat().st_size < 150_000
    texts = json.dumps([value for value in data if "image/png" not in value])
    assert not re.search(r"/(home|root|tmp|usr|Users)\b", texts)
