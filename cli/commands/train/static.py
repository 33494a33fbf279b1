"""`retriever train static`: make an encoder of word vectors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from cli.options import (
    Command,
    Settings,
    complete_path,
    download_option,
    json_option,
    option,
    output_folder,
    quiet_option,
    refuse,
)
from cli.output.progress import EncodingProgress, warn_reader
from cli.output.text import say, tell_encoder
from cli.source_options import SourceOptions, corpus_texts, source_options
from retriever.encoders.static import FITTED, FitSettings, LSASettings

if TYPE_CHECKING:
    from retriever.documents import CorpusReader
    from retriever.encoders.settings import Static
    from retriever.encoders.static import StaticModel


@click.command("static", cls=Command)
@click.argument("sources", nargs=-1, metavar="[SOURCE]...", shell_complete=complete_path)
@source_options
@option(
    "--vectors",
    metavar="FILE|MODEL",
    help="GloVe, word2vec or fastText (.vec) file, or a model with input embeddings; not for lsa.",
    section="Encoder",
)
@option(
    "--method",
    type=click.Choice(["average", "sif", "usif", "p-mean", "lsa"]),
    required=True,
    help="How word vectors become one vector. sif and usif are fitted on the texts of SOURCE. lsa "
    "computes word vectors from these texts: truncated SVD of TF-IDF.",
    section="Encoder",
)
@download_option
@output_folder("Folder to write: a new folder, or the folder of another static encoder.")
@Settings("lsa", LSASettings, "dimensions", leave_out=("sample", "seed"))
@Settings("fit", FitSettings, leave_out=("seed",))
@quiet_option
@json_option
def static_command(
    sources: tuple[str, ...],
    source: SourceOptions,
    vectors: str | None,
    method: Static | Literal["lsa"],
    download: bool,
    output: Path,
    lsa: LSASettings,
    fit: FitSettings,
    quiet: bool,
    as_json: bool,
) -> None:
    """Make a fast encoder from word vectors, for --model.

    average and p-mean fit nothing, so they need no SOURCE. sif and usif count words in the texts of
    SOURCE, and find the components that all texts share. lsa makes its word vectors from SOURCE.
    The command reads SOURCE as `retriever index` does. The encoder runs no transformer.
    """
    from retriever.encoders.static import FORM, fit_static

    if method == "lsa":
        refuse("vectors a components", f"{method} does not use it")
    else:
        fit.check(method)
        refuse("dimensions min_df max_df max_words", f"{method} does not use it")
        if vectors is None:
            raise click.UsageError(f"{method} combines word vectors: name them with --vectors")
    FORM.check_target(output)
    if method != "lsa" and method not in FITTED:
        if sources:
            say(f"note: {method} needs no texts; SOURCE is not read")
        model = fit_static(vectors or "", method, (), settings=fit, download=download)
    elif not sources:
        raise click.UsageError(f"{method} is fitted on texts: name a SOURCE")
    else:
        reader = source.reader(sources)
        with EncodingProgress(reader, quiet=quiet) as progress:
            model = _fit(method, reader, vectors or "", lsa, fit, progress, download=download)
        warn_reader(reader)
    model.save(output)
    _report(model, method, output, quiet=quiet, as_json=as_json)


def _fit(
    method: Static | Literal["lsa"],
    reader: CorpusReader,
    vectors: str,
    lsa: LSASettings,
    fit: FitSettings,
    progress: EncodingProgress,
    *,
    download: bool,
) -> StaticModel:
    """Fit an encoder on the texts of a corpus."""
    from retriever.encoders.static import fit_lsa, fit_static

    def count(texts: int, words: int) -> None:
        progress.window(texts, 0)
        progress.encoded(texts, words)

    texts = corpus_texts(reader)
    if method == "lsa":
        return fit_lsa(texts, replace(lsa, sample=fit.sample), done=count)
    return fit_static(vectors, method, texts, settings=fit, download=download, done=count)


def _report(model: StaticModel, method: str, output: Path, *, quiet: bool, as_json: bool) -> None:
    """Print the facts of a new encoder."""
    words = len(model.lexicon.vectors)
    fitted = model.fitted
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
    """Return the words on the texts that an encoder was fitted on."""
    parameters = facts["parameters"]
    origin = facts["provenance"]
    a = parameters["a"]
    return (
        f"; fitted on {origin['texts']:,} texts of {parameters['mean_words']:.1f} words, "
        f"{origin['known']:.1%} of them known; "
        + (f"a = {a:.3g}" if a is not None else "a is infinite: all words have the same weight")
        + f"; {parameters['components']} components removed, which hold "
        f"{origin['components_hold']:.1%} of the squared length of {origin['sampled']:,} texts"
    )
