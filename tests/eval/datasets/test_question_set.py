from __future__ import annotations

import json

import pytest

from eval.datasets.question_forms import read_question_set
from eval.datasets.question_set import Question, QuestionSet, Spread, statistics
from tests.eval.datasets.question_samples import BEIR, OWN, write


def test_the_figures_are_those_counted_by_hand_and_in_json_by_name(tmp_path):
    found = statistics(read_question_set(write(tmp_path, OWN), "dev"))
    assert (found.questions, found.answered, found.passages) == (3, 2, 3)
    assert found.pool == Spread(1, pytest.approx(5 / 3), 3)
    assert found.question_words == found.passage_words == Spread(2, 2.0, 2)
    # q1 is answered by d2 and by a passage that is nowhere, q2 by d10.
    assert found.answers == 1.5
    read = json.loads(json.dumps(found.to_json()))
    assert read["question_words"] == {"least": 2, "mean": 2.0, "greatest": 2}
    assert read["answers"] == 1.5


def test_words_are_what_white_space_separates_and_every_passage_counts_once(tmp_path):
    question = Question("q", "What's  that\t, then?", ("b",), {"b": 2, "a": 0, "c": -1})
    passages = {"a": "", "b": "one-two three", "unused": "1 2 3 4"}
    found = statistics(QuestionSet("made", "test", (question,), passages))
    assert found.question_words == Spread(4, 4.0, 4)
    assert found.passage_words == Spread(0, 2.0, 4)
    assert (found.passages, found.answers) == (3, 1.0)
    empty = statistics(QuestionSet("made", "test", (), {}))
    assert (empty.question_words, empty.answers) == (None, 0.0)
    # A corpus that is ranked as a whole is not counted.
    whole = statistics(read_question_set(write(tmp_path, BEIR), "test"))
    assert (whole.passages, whole.pool, whole.passage_words) == (None, None, None)
