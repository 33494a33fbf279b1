"""`retriever calibrate`: learn how probable it is that hits are relevant."""

from __future__ import annotations

from pathlib import Path

import click

from cli.commands.query import RankingOptions
from cli.options import Command, Location, complete_path, index_option, option, settings
from cli.output.results import ResultOptions, command_line, result_options
from eval.settings import CalibrationSettings


@click.command("calibrate", cls=Command)
@index_option
@option(
    "--queries",
    metavar="FILE",
    shell_complete=complete_path,
    help="Questions: .jsonl, .csv, .tsv or .txt (one per line).",
    shown_default="made from the documents",
    section="Input",
)
@option(
    "--qrels",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Relevance judgments of --queries in TREC format.",
    section="Input",
)
@option(
    "--made",
    is_flag=True,
    help="Learn from questions made from the documents, and test on --queries.",
    section="Input",
)
@settings("ranking", RankingOptions, "mode", leave_out={"k"})
@settings("learning", CalibrationSettings, "false_answers", metavars={"false_answers": "SHARE"})
@result_options("the report")
def calibrate_command(
    folder: Location,
    queries: str | None,
    qrels: Path | None,
    made: bool,
    ranking: RankingOptions,
    learning: CalibrationSettings,
    shown: ResultOptions,
) -> None:
    """Learn from judged questions how probable it is that a hit of an index is relevant.

    The index keeps what was learned: `retriever query` then says whether there is an answer, and
    with --min-probability prints no hits where there is none. The order of hits stays. Needs at
    least 100 questions with a relevant document, and more for few false answers.
    """
    from eval import MadeQuestionSettings, calibrate, make_questions, read_qrels
    from retriever import Index
    from retriever.documents.reader import CorpusReader

    if (queries is None) != (qrels is None):
        raise click.UsageError("give --queries and --qrels together, or neither")
    texts = None
    if queries is not None:
        reader = CorpusReader([queries], on_empty="fail", number_ids=True)
        texts = {query.id: query.text for query in reader}
    with Index.open(folder) as index:
        with shown.stages() as progress:
            asked = MadeQuestionSettings(documents=max(20, len(index)))
            result = calibrate(
                index,
                texts,
                None if qrels is None else read_qrels(qrels),
                learning,
                search=ranking.settings(),
                made=make_questions(index, asked, progress) if made or texts is None else None,
                progress=progress,
                command=command_line(),
            )
        index.keep_calibration(result.calibration)
    shown.write(result)
