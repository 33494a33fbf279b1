"""`retriever tune`: choose the settings of a pipeline by judged data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from cli.evaluation_options import data_set, qrels_option, queries_option
from cli.options import (
    MINILM,
    Command,
    EncoderOptions,
    Settings,
    complete_path,
    device_option,
    download_option,
    option,
)
from cli.output.progress import Stages
from cli.output.results import ResultOptions, command_line, result_options
from cli.output.text import say
from eval.settings import QuestionSettings, Resampling, TuneSettings

# The files that the command writes, and those that no other command writes.
_WRITTEN_FILES = {
    *("report.json", "report.md", "report.tex", "tuned.toml", "simplest.toml", "values.csv"),
    *("figures", "query-map"),
}
_ONLY_TUNE = {"tuned.toml", "values.csv"}


@click.command("tune", cls=Command)
@click.argument("data", metavar="DATA", shell_complete=complete_path)
@queries_option("choose by, of a corpus or an index", "made from the documents")
@Settings("data_settings", QuestionSettings, leave_out=("depth", "dev_share"))
@Settings(
    "settings",
    TuneSettings,
    "minutes max_latency max_size",
    options=[
        qrels_option(required=False),
        option(
            "-m",
            "--measure",
            metavar="NAME",
            help="Measure that chooses settings: AP, RR or nDCG, each with or without @k, or P@k, "
            "R@k or Success@k.",
            show_default="nDCG@10; AP where each question has candidates",
            section="Ranking",
        ),
        option(
            "-e",
            "--encoder",
            "encoders",
            multiple=True,
            metavar="MODEL[::KEY=VALUE...]",
            help="Encoder to try; the first encoder belongs to the defaults. Repeatable.",
            show_default=MINILM,
            section="Encoder",
        ),
        option(
            "--rerank",
            metavar="FOLDER",
            help="Cross-encoder to try: its folder, or its hub id.",
            section="Ranking",
        ),
    ],
)
@Settings(
    "encoder", EncoderOptions, options=[device_option, download_option], defaults={"cache": True}
)
@Settings("resampling", Resampling)
@result_options("the report, figures, and tuned.toml and simplest.toml if they gain,")
def tune_command(
    data: str,
    queries: str | None,
    data_settings: QuestionSettings,
    settings: TuneSettings,
    encoder: EncoderOptions,
    resampling: Resampling,
    results: ResultOptions,
) -> None:
    """Choose the best settings of encoder, passages, BM25 and fusion.

    DATA is a folder of questions in any format that `eval qa` reads, or a corpus or an index. For a
    corpus or an index, give questions with --queries and --qrels; otherwise the command makes
    questions from the documents.

    The command measures every gain on questions that chose no setting. In the folder of --output,
    tuned.toml has the best settings. simplest.toml has the fewest changes that are no worse.
    `index`, `query` and `serve` read either file with --config. The command writes a file only if
    its gain is significant (p < 0.05). Otherwise the report says to keep the defaults, as is normal
    with fewer than 300 questions.
    """
    from eval import tune
    from retriever.files import check_output

    if results.report is not None:
        check_output(results.report, "that of an earlier `tune`", _foreign_file)
    complete_settings = replace(
        settings,
        queries=None if queries is None else Path(queries),
        loading=encoder.loading(),
        data=data_settings,
        resampling=resampling,
    )
    with Stages() as progress:
        result = tune(
            data_set(Path(data)),
            complete_settings,
            progress=progress,
            notify=say,
            command=command_line(),
        )
    results.show(result)


def _foreign_file(names: set[str]) -> str | None:
    """Return a file of a folder that `tune` may not have written; None if it wrote all files."""
    is_of_tune = not names.isdisjoint(_ONLY_TUNE)
    return min(names - _WRITTEN_FILES, default=None if is_of_tune else min(names))
