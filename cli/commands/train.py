"""`retriever train`: encoders of word vectors or of several encoders, and networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from cli.evaluation_options import (
    DataSet,
    data_set,
    dataset_argument,
    training_questions,
)
from cli.options import (
    MINILM,
    Command,
    EncoderOptions,
    Settings,
    complete_path,
    device_option,
    download_option,
    encoder_options,
    json_option,
    option,
    output_folder,
    quiet_option,
    refuse,
)
from cli.output.progress import EncodingProgress, Stages, warn_reader
from cli.output.results import ResultOptions, result_options
from cli.output.text import meta_lines, meta_summary, say, tell_encoder
from cli.source_options import SourceOptions, corpus_texts, source_options
from eval.settings import CrossPlan, Loading, QuestionSettings
from retriever.encoders.meta import MetaSettings, Method, UnsupSettings
from retriever.encoders.static import FITTED, FitSettings, LSASettings
from retriever.settings import setting
from retriever.training import (
    CrossTrainingSettings,
    EncoderTrainingSettings,
    HeadSettings,
    HeadTrainingSettings,
    SamplingSettings,
)

if TYPE_CHECKING:
    from eval import ScoredPairs
    from eval.training.data import EncoderData
    from retriever.documents import CorpusReader
    from retriever.encoders.meta import MetaEpoch
    from retriever.encoders.settings import Static
    from retriever.encoders.static import StaticModel

_ATTENTION = "weights epochs patience learning_rate weight_decay"
_METHOD = option(
    "--method",
    type=click.Choice(get_args(Method)),
    required=True,
    help="How the encoders are combined: concatenation, zero-padded sum, SVD, generalized "
    "canonical correlation, supervised or unsupervised attention.",
    section="Training",
)


@click.command("static", cls=Command)
@click.argument("sources", nargs=-1, metavar="[SOURCE]...", shell_complete=complete_path)
@source_options
@option(
    "--vectors",
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
    """Make an encoder of word vectors, for --model; it needs no forward pass.

    average and p-mean have nothing to fit and need no SOURCE. sif and usif count words in the
    texts of SOURCE, which is read as `retriever index` reads it, and find the components that all
    texts share. lsa makes word vectors of SOURCE itself, which are averaged.
    """
    from retriever.encoders.static import FORM, fit_lsa, fit_static

    if method == "lsa":
        refuse("vectors a components", f"{method} has no use for it")
    else:
        fit.check(method)
        refuse("dimensions min_df max_df max_words", f"{method} has no use for it")
        if vectors is None:
            raise click.UsageError(f"{method} combines word vectors: name them with --vectors")
    FORM.check_target(output)
    if method != "lsa" and method not in FITTED:
        if sources:
            say(f"note: {method} has nothing to fit; SOURCE is not read")
        model = fit_static(vectors or "", method, (), settings=fit, download=download)
    elif not sources:
        raise click.UsageError(f"{method} is fitted on texts: name a SOURCE")
    else:
        reader = source.reader(sources)
        texts = corpus_texts(reader)
        with EncodingProgress(reader, quiet=quiet) as progress:

            def done(texts: int, words: int) -> None:
                progress.window(texts, 0)
                progress.encoded(texts, words)

            if method == "lsa":
                model = fit_lsa(texts, replace(lsa, sample=fit.sample), done=done)
            else:
                model = fit_static(
                    vectors or "", method, texts, settings=fit, download=download, done=done
                )
        warn_reader(reader)
    model.save(output)
    _report(model, method, output, quiet=quiet, as_json=as_json)


def _report(model: StaticModel, method: str, output: Path, *, quiet: bool, as_json: bool) -> None:
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


@click.command("meta", cls=Command)
@click.argument("sources", nargs=-1, metavar="[CORPUS]...", shell_complete=complete_path)
@source_options
@option(
    "--train",
    type=DataSet(),
    metavar="DATASET",
    help="sup: scored pairs to train on, as `retriever eval sts` reads them; of a folder its "
    "training split.",
    section="Input",
)
@option(
    "--dev",
    type=DataSet(),
    metavar="DATASET",
    help="sup and unsup: scored pairs whose Pearson correlation stops training; of a folder its "
    "dev split.",
    show_default="for unsup the loss on a tenth of the texts",
    section="Input",
)
@option(
    "--source",
    "encoders",
    multiple=True,
    required=True,
    metavar="MODEL[::SETTING...]",
    help="An encoder to combine, such as all-MiniLM-L6-v2::last4 or ./my-sif. Give two or more.",
    section="Encoder",
)
@device_option
@download_option
@Settings(
    "combination",
    MetaSettings,
    "dimensions pooling level",
    options=[_METHOD],
    leave_out=("method",),
)
@Settings("training", UnsupSettings, "weights", leave_out=("margin",))
@output_folder("Folder to write: new, or of another meta-embedding.")
@quiet_option
@json_option
def meta_command(
    sources: tuple[str, ...],
    source: SourceOptions,
    train: Path | None,
    dev: Path | None,
    encoders: tuple[str, ...],
    device: str | None,
    download: bool,
    combination: MetaSettings,
    training: UnsupSettings,
    output: Path,
    quiet: bool,
    as_json: bool,
) -> None:
    """Combine several encoders into one, for --model.

    Words are aligned across the tokenizers of the encoders, mapped into a common space and pooled.
    svd, gcca and unsup are fitted on the texts of CORPUS, sup on --train; conc and avg need
    neither. A run that was interrupted resumes if it is started again.
    """
    from retriever.encoders.meta import FORM, fit_meta

    method = combination.method
    if method not in ("sup", "unsup"):
        refuse(_ATTENTION, "it belongs to --method sup and unsup")
    chosen = replace(combination, training=training)
    FORM.check_target(output)
    reads = method in ("svd", "gcca", "unsup")
    if reads and not sources:
        raise click.UsageError(f"{method} is fitted on texts: name a CORPUS")
    if sources and not reads:
        say(f"note: {method} has nothing to fit on texts; CORPUS is not read")
    reader = source.reader(sources) if reads else None
    with Stages(quiet=quiet) as progress:
        steps: dict[str, Any] = {}

        def begin(texts: int) -> None:
            steps["texts"] = progress("encoding texts", texts)

        def epoch(one: MetaEpoch) -> None:
            if "epochs" not in steps:
                steps["epochs"] = progress("training epochs", chosen.training.epochs)
            if one.epoch:
                steps["epochs"](1)

        encoder = fit_meta(
            corpus_texts(reader) if reader else (),
            encoders,
            output,
            chosen,
            train=_pairs(train, "train"),
            dev=_pairs(dev, "dev"),
            device=device,
            download=download,
            begin=begin,
            done=lambda texts, pieces: steps["texts"](texts),
            epoch=epoch,
            notify=say,
        )
    if reader:
        warn_reader(reader)
    facts = encoder.meta_parts().describe()
    summary = f"{output}: {meta_summary(facts)}, window {encoder.spec.max_length}"
    facts = {"fingerprint": encoder.spec.fingerprint, **facts}
    lines = (summary, *meta_lines(facts))
    tell_encoder(output, lines, facts, as_json=as_json, quiet=quiet)


def _pairs(path: Path | None, split: Literal["train", "dev"]) -> ScoredPairs | None:
    """The scored pairs of a file, or of one split of a folder."""
    from eval import read_sts
    from retriever.errors import SourceError

    if path is None:
        return None
    task = read_sts(path)
    found = task.subsets[0].pairs if path.is_file() else getattr(task, split)
    if found is None:
        raise SourceError(f"{path}: has no {split} split; name a file of scored pairs")
    pairs: ScoredPairs = found
    return pairs


_RESTART = option(
    "--restart",
    is_flag=True,
    help="Start over instead of resuming from a checkpoint, and replace the result of another "
    "training.",
    section="Training",
)


def _sampling_options(defaults: SamplingSettings) -> Callable[[Any], Callable[..., Any]]:
    """The command takes `sampling: SamplingSettings`, with these defaults."""
    given = {name: value for name, value in asdict(defaults).items() if value is not None}
    return Settings("sampling", SamplingSettings, "negatives", defaults=given)


def _fine_tuning_options(
    kind: type[CrossTrainingSettings] | type[EncoderTrainingSettings], first: str = ""
) -> Callable[[Any], Callable[..., Any]]:
    """The command takes `training` of this kind; `first` is shown before its other options."""
    return Settings("training", kind, f"{first} train epochs", metavars={"train": "full|last:N"})


@dataclass(frozen=True, slots=True)
class PairOptions:
    """What the data are read as."""

    pairs: Literal["title"] | None = setting(
        None, "Read DATA as a corpus, and train on titles and texts of documents.", section="Input"
    )
    sample: int = setting(
        10_000, "Maximum number of pairs, drawn at random, of a corpus.", low=2, section="Input"
    )


@click.command("encoder", cls=Command)
@click.argument("sources", nargs=-1, required=True, metavar="DATA...", shell_complete=complete_path)
@output_folder("Write the encoder to this folder.")
@Settings("goal", PairOptions, "pairs")
@source_options
@training_questions
@option(
    "--dev",
    type=DataSet(),
    metavar="PATH",
    help="File or folder to choose the epoch on.",
    show_default="the dev split of DATA, else a tenth of it, at most 1,000 pairs",
    section="Training",
)
@encoder_options(MINILM)
@_fine_tuning_options(EncoderTrainingSettings, "objective")
@_sampling_options(EncoderTrainingSettings().sampling)
@_RESTART
@result_options(plot=True)
def encoder_command(
    sources: tuple[str, ...],
    output: Path,
    goal: PairOptions,
    source: SourceOptions,
    data: QuestionSettings,
    dev: Path | None,
    encoder: EncoderOptions,
    training: EncoderTrainingSettings,
    sampling: SamplingSettings,
    restart: bool,
    shown: ResultOptions,
) -> None:
    """Fine-tune an encoder on DATA, and keep the best epoch on dev.

    DATA is a folder of questions with passages, of scored pairs (STS) or of labeled pairs (NLI);
    files of pairs; or, with --pairs, a corpus as `retriever index` reads it. If no epoch is better
    on dev than the untrained encoder, that is what is kept. The folder is a model for --model, here
    and in sentence-transformers. The same command resumes an interrupted run.
    """
    from eval import CorpusPairs, EncoderFitSettings, fit_encoder

    reader: CorpusReader | None = None
    given: EncoderData
    if goal.pairs is None:
        given = [data_set(Path(one)) for one in sources]
    else:
        reader = source.reader(sources)
        given = CorpusPairs(reader, goal.pairs, goal.sample, training.seed)
    with Stages() as progress:
        result = fit_encoder(
            given,
            output,
            EncoderFitSettings(
                encoder.model,
                replace(training, sampling=sampling),
                encoder.loading(),
                data,
                dev,
            ),
            restart=restart,
            progress=progress,
            notify=say,
        )
    if reader is not None:
        warn_reader(reader)
    shown.show(result)


_SYSTEMS = [
    f"{name}{head}" for name in ("bilinear", "concat", "uv") for head in ("", ":linear", ":mlp")
]


@click.command("reranker", cls=Command)
@dataset_argument
@output_folder("Write the reranker to this folder.")
@training_questions
@option(
    "--system",
    type=click.Choice(_SYSTEMS),
    metavar="NAME",
    default="uv:mlp",
    help="Head: bilinear, concat or uv, followed by :linear or :mlp.",
    section="Training",
)
@option(
    "--seeds",
    type=click.IntRange(1),
    default=3,
    metavar="N",
    help="Number of times that the head is trained; the best one on dev is kept.",
    section="Training",
)
@Settings("head", HeadSettings, leave_out=("interaction", "head"))
@Settings("training", HeadTrainingSettings, "epochs", leave_out=("seed",))
@_sampling_options(SamplingSettings())
@encoder_options("all-MiniLM-L6-v2, or the model of --index", cache=True)
@result_options(plot=True)
def reranker_command(
    dataset: Path,
    output: Path,
    data: QuestionSettings,
    system: str,
    seeds: int,
    head: HeadSettings,
    training: HeadTrainingSettings,
    sampling: SamplingSettings,
    encoder: EncoderOptions,
    shown: ResultOptions,
) -> None:
    """Train a head on the vectors of DATASET's training questions and their passages.

    The encoder is not changed, and encodes each text once. The epoch with the best AP on the dev
    split is kept, which may be the untrained head, and of several seeds the best one.
    """
    from eval import HeadPlan, QASettings, fit_reranker

    interaction, _, kind = system.partition(":")
    plan = HeadPlan(head, replace(training, sampling=sampling))
    with Stages() as progress:
        result = fit_reranker(
            dataset,
            output,
            QASettings(
                encoder.model,
                encoder.loading(),
                data,
                seeds=seeds,
                head=plan.of(interaction, kind or "linear"),
            ),
            progress=progress,
            notify=say,
        )
    shown.show(result)


@click.command("cross-encoder", cls=Command)
@dataset_argument
@output_folder("Write the cross-encoder to this folder.")
@training_questions
@option(
    "--model",
    "transformer",
    metavar="MODEL",
    help="Transformer to fine-tune: a folder, the name of a bundled model, or a hub id in the "
    "local cache.",
    show_default=MINILM,
    section="Encoder",
)
@device_option
@download_option
@Settings("cross", CrossPlan)
@_fine_tuning_options(CrossTrainingSettings)
@_sampling_options(CrossTrainingSettings().sampling)
@_RESTART
@result_options(plot=True)
def cross_encoder_command(
    dataset: Path,
    output: Path,
    data: QuestionSettings,
    transformer: str | None,
    device: str | None,
    download: bool,
    cross: CrossPlan,
    training: CrossTrainingSettings,
    sampling: SamplingSettings,
    restart: bool,
    shown: ResultOptions,
) -> None:
    """Fine-tune a cross-encoder on the questions of DATASET.

    The same command resumes an interrupted run from its last checkpoint. The epoch that is kept is
    the last one whose dev AP is at most --tolerance below the best before it.
    """
    from eval import QASettings, fit_cross_encoder

    training = replace(training, sampling=sampling)
    with Stages() as progress:
        result = fit_cross_encoder(
            dataset,
            output,
            QASettings(
                loading=Loading(device, download),
                data=data,
                cross=replace(cross, model=transformer or MINILM, training=training),
            ),
            restart=restart,
            progress=progress,
            notify=say,
        )
    shown.show(result)
