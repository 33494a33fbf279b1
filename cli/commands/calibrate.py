"""`retriever calibrate`: learn the probability that a hit is relevant."""

from __future__ import annotations

from pathlib import Path

import click

from cli.commands.query import RankingOptions, ranking_options
from cli.evaluation_options import qrels_option, queries_option, query_texts
from cli.options import Command, Location, Settings, index_option, option
from cli.output.progress import Stages
from cli.output.results import ResultOptions, command_line, result_options
from eval.settings import CalibrationSettings


@click.command("calibrate", cls=Command)
@index_option
@queries_option("learn from", "made from the documents")
@qrels_option(required=False)
@option(
    "--made",
    "learns_from_made",
    is_flag=True,
    help="Learn from questions made from the documents, and test on --queries.",
    section="Input",
)
@ranking_options("mode", leave_out=("k", "recency", "date_field", "sort"))
@Settings("learning", CalibrationSettings, "false_answers", metavars={"false_answers": "SHARE"})
@result_options("the report")
def calibrate_command(
    folder: Location,
    queries: str | None,
    qrels: Path | None,
    learns_from_made: bool,
    ranking: RankingOptions,
    learning: CalibrationSettings,
    results: ResultOptions,
) -> None:
    """Learn the probability that a hit is relevant.

    The index stores the result. `retriever query` then says whether there is an answer; with
    --min-probability it prints no hits if there is none. The order of hits does not change. You
    need at least 100 questions with a relevant document; more questions lead to fewer false
    answers.
    """
    from eval import MadeQuestionSettings, calibrate, make_questions, read_qrels
    from retriever import Index

    if (queries is None) != (qrels is None):
        raise click.UsageError("give --queries and --qrels together, or neither")
    texts = None if queries is None else query_texts(queries)
    with Index.open(folder) as index:
        with Stages() as progress:
            made_questions = None
            if learns_from_made or texts is None:
                settings = MadeQuestionSettings(documents=max(20, len(index)))
                made_questions = make_questions(index, settings, progress)
            result = calibrate(
                index,
                texts,
                None if qrels is None else read_qrels(qrels),
                learning,
                search=ranking.settings(),
                made=made_questions,
                progress=progress,
                command=command_line(),
            )
        index.keep_calibration(result.calibration)
    results.show(result)
