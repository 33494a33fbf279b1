"""`retriever fit static`: an encoder made of word vectors."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.options.declaring import RARE, Command, option
from cli.options.encoder import download_option
from cli.options.output import json_option, output_folder, quiet_option
from cli.options.source import SourceOptions, corpus_texts, source_options

if TYPE_CHECKING:
    from retriever.encoders.settings import Static
    from retriever.encoders.static.model import StaticModel


@click.command("static", cls=Command)
@click.argument("sources", nargs=-1, metavar="SOURCE...")
@source_options
@option(
    "--vectors",
    required=True,
    metavar="FILE|MODEL",
    help="GloVe, word2vec or fastText (.vec) file, or a model for its input embeddings.",
    section="Encoder",
)
@option(
    "--method",
    type=click.Choice(["average", "sif", "usif", "p-mean"]),
    required=True,
    help="How word vectors become one vector; sif and usif are fitted on the texts of SOURCE.",
    section="Encoder",
)
@download_option
@output_folder("Folder to write: new, or of another static encoder.")
@option(
    "--word-counts",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File with a word and its count per line, instead of the counts in SOURCE.",
    section=RARE,
)
@option(
    "--sample",
    type=click.IntRange(min=1),
    default=100_000,
    metavar="N",
    help="Maximum number of texts, drawn at random, to compute components from.",
    section=RARE,
)
@option(
    "--components",
    type=click.IntRange(min=0),
    metavar="N",
    help="Number of components to remove.",
    shown_default="1 for sif, 5 for usif",
    section=RARE,
)
@option(
    "--a",
    type=click.FloatRange(min=0, min_open=True),
    metavar="A",
    help="SIF's smoothing parameter; usif computes its own.",
    shown_default="0.001",
    section=RARE,
)
@quiet_option
@json_option
def command(
    sources: tuple[str, ...],
    source: SourceOptions,
    vectors: str,
    method: Static,
    download: bool,
    output: Path,
    word_counts: Path | None,
    sample: int,
    components: int | None,
    a: float | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Make an encoder of word vectors, for --model; it needs no forward pass.

    average and p-mean have nothing to fit and need no SOURCE. sif and usif count words in the
    texts of SOURCE, which is read as `retriever index` reads it, and find the components that all
    texts share.
    """
    from cli.output.progress import EncodingProgress, warn_reader
    from cli.output.results import say
    from retriever.encoders.static.fitting import FitSettings
    from retriever.encoders.static.folder import FITTED
    from retriever.encoders.static.model import check_target, fit_static

    settings = FitSettings(a, components, sample, word_counts=word_counts)
    settings.check(method)
    check_target(output)
    if method not in FITTED:
        if sources:
            say(f"note: {method} has nothing to fit; SOURCE is not read")
        model = fit_static(vectors, method, (), settings=settings, download=download)
    elif not sources:
        raise click.UsageError(f"{method} is fitted on texts: name a SOURCE")
    else:
        reader = source.reader(sources)
        with EncodingProgress(reader, quiet=quiet) as progress:

            def done(texts: int, words: int) -> None:
                progress.window(texts)
                progress.encoded(texts, words)

            model = fit_static(
                vectors,
                method,
                corpus_texts(reader),
                settings=settings,
                download=download,
                done=done,
            )
        warn_reader(reader, say)
    model.save(output)
    _report(model, output, quiet=quiet, as_json=as_json)


def _report(model: StaticModel, output: Path, *, quiet: bool, as_json: bool) -> None:
    from retriever.encoders.settings import EncoderSettings

    encoder = str(EncoderSettings(model=str(output)))
    words = len(model.parts.lexicon.vectors)
    facts: dict[str, Any] = {
        "encoder": encoder,
        "method": model.method,
        "words": words,
        "dimensions": model.dimensions,
        "weights": model.weights,
        "parameters": dict(model.fitted.parameters) if model.fitted else {},
        "provenance": dict(model.provenance),
    }
    if as_json:
        click.echo(json.dumps(facts))
    elif not quiet:
        click.echo(
            f"{output}: {model.method} of {words:,} words, {model.dimensions} dimensions"
            + (_fitted_line(facts) if model.fitted else "")
        )
        click.echo(f"--model {shlex.quote(encoder)}")


def _fitted_line(facts: dict[str, Any]) -> str:
    parameters, origin = facts["parameters"], facts["provenance"]
    a = parameters["a"]
    return (
        f"; fitted on {origin['texts']:,} texts of {parameters['mean_words']:.1f} words, "
        f"{origin['known']:.1%} of them known; "
        + (f"a = {a:.3g}" if a is not None else "a is infinite: all words have the same weight")
        + f"; {parameters['components']} components removed, which hold "
        f"{origin['components_hold']:.1%} of the squared length of {origin['sampled']:,} texts"
    )
