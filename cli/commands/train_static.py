"""`retriever train static`: an encoder made of word vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from cli.options import (
    Command,
    complete_path,
    download_option,
    flag_of,
    is_given,
    json_option,
    option,
    output_folder,
    quiet_option,
    settings,
)
from cli.output.progress import EncodingProgress, warn_reader
from cli.output.text import say, tell_encoder
from cli.source_options import SourceOptions, corpus_texts, source_options
from retriever.encoders.static.settings import FITTED, FitSettings, LSASettings

if TYPE_CHECKING:
    from retriever.documents.reader import CorpusReader
    from retriever.encoders.settings import Static
    from retriever.encoders.static.model import StaticModel


@click.command("static", cls=Command)
@click.argument("sources", nargs=-1, metavar="[SOURCE]...", shell_complete=complete_path)
@source_options
@option(
    "--vectors",
    multiple=True,  # To refuse a second one; files are combined by `train meta`.
    metavar="FILE|MODEL",
    help="GloVe, word2vec or fastText (.vec) file, or a model for its input embeddings; "
    "not for lsa.",
    section="Encoder",
)
@option(
    "--method",
    type=click.Choice(["average", "sif", "usif", "p-mean", "lsa"]),
    required=True,
    help="How word vectors become one vector; sif and usif are fitted on the texts of SOURCE. lsa "
    "makes word vectors of these texts: truncated SVD of TF-IDF.",
    section="Encoder",
)
@download_option
@output_folder("Folder to write: new, or of another static encoder.")
@settings("lsa", LSASettings, "dimensions", leave_out=("sample", "seed"))
@settings("fit", FitSettings, leave_out=("seed",))
@quiet_option
@json_option
def static_command(
    sources: tuple[str, ...],
    source: SourceOptions,
    vectors: tuple[str, ...],
    method: Static | Literal["lsa"],
    download: bool,
    output: Path,
    lsa: LSASettings,
    fit: FitSettings,
    quiet: bool,
    as_json: bool,
) -> None:
    """Make an encoder of word vectors, for --model; it needs no forward pass.

    average and p-mean have nothing to fit and need no SOURCE. sif and usif count words in the
    texts of SOURCE, which is read as `retriever index` reads it, and find the components that all
    texts share. lsa makes word vectors of SOURCE itself, which are averaged.
    """
    from retriever.encoders.static.fitting import fit_lsa, fit_static
    from retriever.encoders.static.model import FORM

    if method == "lsa":
        _refuse(method, "vectors", "word_counts", "a", "components")
    else:
        fit.check(method)
        _refuse(method, "dimensions", "min_df", "max_df", "max_words")
        if not vectors:
            raise click.UsageError(f"{method} combines word vectors: name them with --vectors")
        if len(vectors) > 1:
            raise click.UsageError(
                f"--vectors: expected one file or model, found {len(vectors)}; fit each, and "
                "combine the folders with `retriever train meta --method conc --level sentence`"
            )
    FORM.check_target(output)
    if method != "lsa" and method not in FITTED:
        if sources:
            say(f"note: {method} has nothing to fit; SOURCE is not read")
        model = fit_static(vectors[0], method, (), settings=fit, download=download)
    elif not sources:
        raise click.UsageError(f"{method} is fitted on texts: name a SOURCE")
    else:
        with _reading(source.reader(sources), quiet) as (texts, done):
            if method == "lsa":
                model = fit_lsa(texts, replace(lsa, sample=fit.sample), done=done)
            else:
                model = fit_static(
                    vectors[0], method, texts, settings=fit, download=download, done=done
                )
    model.save(output)
    _report(model, method, output, quiet=quiet, as_json=as_json)


def _refuse(method: str, *names: str) -> None:
    for name in names:
        if is_given(name):
            raise click.UsageError(f"{flag_of(name)}: {method} has no use for it; leave it out")


@contextmanager
def _reading(
    reader: CorpusReader, quiet: bool
) -> Iterator[tuple[Iterator[str], Callable[[int, int], None]]]:
    """The texts of a corpus, and what to call with the texts and words that were read."""
    with EncodingProgress(reader, quiet=quiet) as progress:

        def done(texts: int, words: int) -> None:
            progress.window(texts)
            progress.encoded(texts, words)

        yield corpus_texts(reader), done
    warn_reader(reader)


def _report(model: StaticModel, method: str, output: Path, *, quiet: bool, as_json: bool) -> None:
    words, fitted = len(model.lexicon.vectors), model.fitted
    facts: dict[str, Any] = {
        "method": method,
        "words": words,
        "dimensions": model.dimensions,
        "weights": model.weights,
        "parameters": dict(fitted.parameters) if fitted else {},
        "provenance": dict(model.provenance),
    }
    line = f"{output}: {method} of {words:,} words, {model.dimensions} dimensions"
    line += _fitted_line(facts) if fitted else ""
    tell_encoder(output, [line], facts, as_json=as_json, quiet=quiet)


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
