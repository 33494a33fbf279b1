"""`retriever tune`, `calibrate` and `eval layers`: what is chosen or learned by judged data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from cli.commands.query import RankingOptions
from cli.evaluation_options import (
    DataSet,
    data_set,
    qrels_option,
    queries_option,
    query_texts,
)
from cli.options import (
    MINILM,
    Command,
    EncoderOptions,
    Location,
    Settings,
    complete_path,
    device_option,
    download_option,
    encoder_options,
    index_option,
    option,
)
from cli.output.progress import Stages
from cli.output.results import ResultOptions, command_line, result_options
from cli.output.text import say
from eval.settings import (
    CalibrationSettings,
    LayerSearchSettings,
    QuestionSettings,
    Resampling,
    TuneSettings,
)


@click.command("tune", cls=Command)
@click.argument("data", metavar="DATA", shell_complete=complete_path)
@queries_option("choose by, of a corpus or an index", "made from the documents")
@Settings("data_settings", QuestionSettings, leave_out=("depth", "dev_share"))
@Settings(
    "asked",
    TuneSettings,
    "minutes max_latency max_size",
    options=[
        qrels_option(required=False),
        option(
            "-m",
            "--measure",
            metavar="NAME",
            help="What settings are chosen by: AP, RR, nDCG, each with or without @k, P@k, R@k or "
            "Success@k.",
            show_default="nDCG@10; AP where each question has candidates",
            section="Ranking",
        ),
        option(
            "-e",
            "--encoder",
            "encoders",
            multiple=True,
            metavar="MODEL[::KEY=VALUE...]",
            help="Encoder to choose from; the first one is that of the defaults. May be repeated.",
            show_default=MINILM,
            section="Encoder",
        ),
        option(
            "--rerank",
            metavar="FOLDER",
            help="A cross-encoder to try: the folder of a trained one, or the folder or hub id of "
            "a CrossEncoder of sentence-transformers.",
            section="Ranking",
        ),
    ],
)
@Settings(
    "loaded", EncoderOptions, options=[device_option, download_option], defaults={"cache": True}
)
@Settings("resampling", Resampling)
@result_options("the report, figures, and tuned.toml and simplest.toml if they gain,")
def tune_command(
    data: str,
    queries: str | None,
    data_settings: QuestionSettings,
    asked: TuneSettings,
    loaded: EncoderOptions,
    resampling: Resampling,
    shown: ResultOptions,
) -> None:
    """Choose the settings of encoder, passages, BM25 and fusion that are best on DATA.

    DATA is a folder of questions in any form that `eval qa` reads, or a corpus or an index, with
    --queries and --qrels or without: then questions are made from the documents.

    Every gain is measured on questions that no choice has seen. tuned.toml in the folder of
    --output has the best settings, simplest.toml those with the fewest changes that are no worse;
    `index`, `query` and `serve` take either with --config. A file is written only if its gain is
    significant (p < 0.05); otherwise the report says to keep the defaults, as is normal with fewer
    than 300 questions.
    """
    from eval import tune
    from retriever.files import check_output

    if shown.report is not None:
        check_output(shown.report, "that of an earlier `tune`", _not_of_tune)
    wanted = replace(
        asked,
        queries=None if queries is None else Path(queries),
        loading=loaded.loading(),
        data=data_settings,
        resampling=resampling,
    )
    with Stages() as progress:
        found = data_set(Path(data))
        result = tune(found, wanted, progress=progress, notify=say, command=command_line())
    shown.show(result)


def _not_of_tune(names: set[str]) -> str | None:
    own = "report.json report.md report.tex tuned.toml simplest.toml values.csv figures query-map"
    # No other command writes these.
    is_of_tune = not names.isdisjoint({"tuned.toml", "values.csv"})
    return min(names - set(own.split()), default=None if is_of_tune else min(names))


@click.command("calibrate", cls=Command)
@index_option
@queries_option("learn from", "made from the documents")
@qrels_option(required=False)
@option(
    "--made",
    is_flag=True,
    help="Learn from questions made from the documents, and test on --queries.",
    section="Input",
)
@Settings("ranking", RankingOptions, "mode", leave_out={"k"})
@Settings("learning", CalibrationSettings, "false_answers", metavars={"false_answers": "SHARE"})
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

    if (queries is None) != (qrels is None):
        raise click.UsageError("give --queries and --qrels together, or neither")
    texts = None if queries is None else query_texts(queries)
    with Index.open(folder) as index:
        with Stages() as progress:
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
    shown.show(result)


@click.command("layers", cls=Command)
@click.argument("data", nargs=-1, required=True, metavar="DATA...", type=DataSet())
@option(
    "--test",
    type=DataSet(),
    metavar="FILE",
    help="File of scored pairs to test the choice on.",
    section="Input",
)
@Settings("search", LayerSearchSettings, "split test_split objective max_layers protocol")
@encoder_options(MINILM, "pooling dtype", cache=True)
@result_options("the report, best sets and figure", plot=True)
def layers_command(
    data: tuple[Path, ...],
    test: Path | None,
    search: LayerSearchSettings,
    encoder: EncoderOptions,
    shown: ResultOptions,
) -> None:
    """Average every set of hidden states as in BERT-LC, and report the best.

    DATA is a file of scored pairs (TSV, CSV or JSONL with score, sentence1 and sentence2), or a
    folder of questions with candidates, in any form that `eval qa` reads; with --protocol paper
    the folder of a similarity test, of which all splits are merged, or several files of pairs.
    ::head=yes in --model searches with the model's head after the mean, more slowly.
    """
    from eval import search_layers

    if len(data) > 1 and search.protocol == "given":
        raise click.UsageError(
            f"expected one file or folder to search on, found {len(data)}; name the file to test "
            "on with --test, or merge and divide all of them with --protocol paper"
        )
    settings = replace(search, encoder=encoder.model, loading=encoder.loading())
    with Stages() as progress:
        result = search_layers(data, settings, test=test, progress=progress, command=command_line())
    shown.show(result)
