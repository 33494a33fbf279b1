"""`retriever tune`: which settings are best for these documents and questions?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from cli.evaluation_options import cache_folder, cache_option, data_set
from cli.options import (
    MINILM,
    Command,
    complete_path,
    device_option,
    download_option,
    option,
    settings,
)
from cli.output.results import ResultOptions, command_line, result_options
from eval.settings import Loading, QuestionSettings, Resampling, TuneSettings


@click.command("tune", cls=Command)
@click.argument("data", metavar="DATA", shell_complete=complete_path)
@option(
    "--queries",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Questions of a corpus or an index: .jsonl, .csv, .tsv or .txt.",
    shown_default="made from the documents",
    section="Input",
)
@option(
    "--qrels",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Judgments of --queries in TREC's or BEIR's form.",
    section="Input",
)
@settings(
    "data_settings", QuestionSettings, "variant train_split", leave_out=("depth", "dev_share")
)
@option(
    "-m",
    "--measure",
    metavar="NAME",
    help="What settings are chosen by: AP, RR, nDCG, each with or without @k, P@k, R@k or "
    "Success@k.",
    shown_default="nDCG@10; AP where each question has candidates",
    section="Ranking",
)
@settings("asked", TuneSettings, "minutes max_latency max_size")
@option(
    "-e",
    "--encoder",
    "encoders",
    multiple=True,
    metavar="MODEL[::KEY=VALUE...]",
    help="Encoder to choose from; the first one is that of the defaults. May be repeated.",
    shown_default=MINILM,
    section="Encoder",
)
@option(
    "--rerank",
    metavar="FOLDER",
    help="A cross-encoder to try: the folder of a trained one, or the folder or hub id of a "
    "CrossEncoder of sentence-transformers.",
    section="Ranking",
)
@device_option
@download_option
@cache_option
@settings("resampling", Resampling)
@result_options("tuned.toml, simplest.toml, the report and figures")
def tune_command(
    data: str,
    queries: Path | None,
    qrels: Path | None,
    data_settings: QuestionSettings,
    measure: str | None,
    asked: TuneSettings,
    encoders: tuple[str, ...],
    rerank: str | None,
    device: str | None,
    download: bool,
    cache: bool,
    resampling: Resampling,
    shown: ResultOptions,
) -> None:
    """Choose the settings of encoder, passages, BM25 and fusion that are best on DATA.

    DATA is a folder of questions in any form that `eval qa` reads, or a corpus or an index, with
    --queries and --qrels or without: then questions are made from the documents.

    Every gain is measured on questions that no choice has seen. tuned.toml in the folder of
    --output has the best settings, simplest.toml those with the fewest changes that are no worse;
    `index`, `query` and `serve` take either with --config.
    """
    if data == "layers" and not Path(data).exists():
        raise click.UsageError("No such command 'layers'; did you mean `eval layers`?")
    from eval import tune
    from retriever.errors import ConfigError

    if shown.report is not None and shown.report.exists() and any(shown.report.iterdir()):
        raise ConfigError(
            f"{shown.report}: expected a new name or an empty folder, found files in it; change "
            "--output"
        )
    wanted = replace(
        asked,
        encoders=encoders,
        measure=measure,
        queries=queries,
        qrels=qrels,
        rerank=rerank,
        loading=Loading(device, download, cache_folder(cache)),
        data=data_settings,
        resampling=resampling,
    )
    with shown.stages() as progress:
        result = tune(
            data_set(Path(data)),
            wanted,
            progress=progress,
            notify=shown.notify,
            command=command_line(),
        )
    shown.write(result)
