"""`retriever fit static`: an encoder made of word vectors."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from cli.options.shared import field_options, json_option, on_error_option, quiet_option

if TYPE_CHECKING:
    from retriever.corpus import Document
    from retriever.encoders.settings import Static
    from retriever.encoders.static.model import StaticModel


@click.command("static")
@click.argument("sources", nargs=-1, metavar="SOURCE...")
@click.option(
    "--vectors",
    required=True,
    metavar="FILE|MODEL",
    help="A GloVe, word2vec or fastText (.vec) file, or a model for its input embeddings.",
)
@click.option(
    "--method",
    type=click.Choice(["average", "sif", "usif", "p-mean"]),
    required=True,
    help="How word vectors become one; sif and usif are fitted on the texts of SOURCE...",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    required=True,
    help="The folder to write, new or of another static encoder.",
)
@click.option(
    "--word-counts",
    type=click.Path(path_type=Path),
    help="A word and its count a line, in place of the counts in SOURCE...",
)
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    help="Components are of at most so many texts, drawn at random.",
)
@click.option(
    "--components",
    type=click.IntRange(min=0),
    help="How many are removed. [default: 1 for sif, 5 for usif]",
)
@click.option(
    "--a",
    type=click.FloatRange(min=0, min_open=True),
    help="SIF's smoothing; usif derives its own. [default: 0.001]",
)
@click.option("--download", is_flag=True, help="Fetch a model that is not in the local hub cache.")
@field_options
@on_error_option
@quiet_option
@json_option
def command(
    sources: tuple[str, ...],
    vectors: str,
    method: Static,
    output: Path,
    word_counts: Path | None,
    sample: int,
    components: int | None,
    a: float | None,
    download: bool,
    id_field: str | None,
    text_field: str | None,
    title_field: str | None,
    on_error: Literal["fail", "skip"],
    quiet: bool,
    as_json: bool,
) -> None:
    """Make an encoder of word vectors, for --model; it needs no forward pass.

    average and p-mean have nothing to fit and need no SOURCE. sif and usif count words in the
    texts of SOURCE..., which are read as `retriever index` reads them, and find the components
    that all texts share.
    """
    from cli.output.progress import EncodingProgress, warn_reader
    from retriever.corpus import CorpusReader, Fields
    from retriever.encoders.static.fitting import FitSettings
    from retriever.encoders.static.folder import FITTED
    from retriever.encoders.static.model import check_target, fit_static

    settings = FitSettings(a, components, sample, word_counts=word_counts)
    settings.check(method)
    check_target(output)
    if method not in FITTED:
        if sources:
            click.echo(f"note: {method} has nothing to fit; SOURCE is not read", err=True)
        model = fit_static(vectors, method, (), settings=settings, download=download)
    elif not sources:
        raise click.UsageError(f"{method} is fitted on texts: name a SOURCE")
    else:
        fields = Fields(id_field, text_field, title_field)
        reader = CorpusReader(sources, fields, on_error=on_error)
        with EncodingProgress(reader, quiet=quiet) as progress:

            def done(texts: int, words: int) -> None:
                progress.window(texts)
                progress.encoded(texts, words)

            model = fit_static(
                vectors, method, _texts(reader), settings=settings, download=download, done=done
            )
        warn_reader(reader, lambda line: click.echo(line, err=True))
    model.save(output)
    _report(model, output, quiet=quiet, as_json=as_json)


def _texts(documents: Iterable[Document]) -> Iterator[str]:
    from retriever.indexing.add import passage_text

    return (passage_text(document, None) for document in documents)


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
        + (f"a = {a:.3g}" if a is not None else "a is infinite: all words weigh the same")
        + f"; {parameters['components']} components removed, which hold "
        f"{origin['components_hold']:.1%} of the squared length of {origin['sampled']:,} texts"
    )
