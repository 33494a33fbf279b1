"""The tables and figures of the papers as commands of this program.

`{data}` stands for the folder of data sets, `{model}` for the encoder and `{output}` for the folder
of the experiment's reports. A step whose report is there is not run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from retriever.errors import ConfigError

_STS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sick")
_TRANSFER = ("mr", "cr", "subj", "mpqa", "sst2", "sst5", "trec", "mrpc")
_ENTAILED = (*_TRANSFER, "sick")
_MADE = ("sentence_length", "word_content", "bigram_shift")
_WK = "-e ::sbert-wk"
_WITHOUT_MODEL = {("eval", "categories"), ("make", "probing"), ("fit", "static"), ("train", "meta")}


@dataclass(frozen=True, slots=True)
class Experiment:
    """A table or figure.

    Attributes:
        paper: "sbert-wk", "bert-lc", "ma" or "unsup".
        name: such as "table-3".
        title: what it shows.
        also: names of the paper's other tables and figures that the same reports hold.
        steps: name of each report to the command without `retriever`, its report's folder and
            `--model` being added where the command has them.
    """

    paper: str
    name: str
    title: str
    steps: tuple[tuple[str, str], ...]
    also: tuple[str, ...] = ()

    def commands(self, data: Path, model: str, output: Path) -> Iterator[tuple[Path, list[str]]]:
        """The folder that each step writes, and its arguments."""
        for name, command in self.steps:
            folder = output / self.paper / self.name / name
            values = {"data": data, "model": model, "output": folder.parent}
            arguments = [part.format(**values) for part in command.split()]
            if tuple(arguments[:2]) not in _WITHOUT_MODEL:
                arguments += ["--model", model]
            yield folder, [*arguments, "--output", str(folder)]


def experiments(paper: str | None = None, name: str | None = None) -> tuple[Experiment, ...]:
    """The experiments of a paper, or one of them; all if no paper is named.

    Raises:
        ConfigError: there is none of that name; lists those that there are.
    """
    found = tuple(
        one for one in _ALL if paper in (None, one.paper) and name in (None, one.name, *one.also)
    )
    if not found:
        named: dict[str, list[str]] = {}
        for one in _ALL:
            named.setdefault(one.paper, []).extend((one.name, *one.also))
        known = "; ".join(f"{of}: {', '.join(names)}" for of, names in named.items())
        raise ConfigError(
            f"experiment: expected one of {known} (tables of times are benchmarks of the "
            f"repository, see docs/results.md); found {paper} {name or ''}".strip()
        )
    return found


def _each(command: str, sets: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The same command on one set after the other."""
    return tuple((name, command.replace("{set}", f"{{data}}/{name}")) for name in sets)


def _probing(command: str) -> tuple[tuple[str, str], ...]:
    """SentEval's three tasks that need no parser, made from a corpus, and a command on them."""
    files = " ".join(f"{{output}}/probing/{name}.txt" for name in _MADE)
    made = "make probing {data}/oewn_sentences/corpus.jsonl"
    return (("probing", made), ("probe", f"{command} {files}"))


# Logistic regression with two nested folds: ten, for every layer and pooling, take days.
_LOGISTIC = "--classifier lr --folds 2 --seeds 1"
_BY_LAYER = (
    ("sts", "eval sts " + " ".join(f"{{data}}/{one}" for one in _STS) + " --by-layer"),
    *(
        (f"transfer-{name}", command)
        for name, command in _each(f"eval transfer {{set}} --by-layer {_LOGISTIC}", _ENTAILED)
    ),
    *_probing("eval probe --by-layer --seeds 1"),
    *(
        (f"qa-{name}", command)
        for name, command in _each("eval qa {set} --by-layer", ("wikiqa", "trecqa", "selqa"))
    ),
)
# The last layer, the mean of four, and an LSA of the corpus that the maps are fitted on.
_SOURCES = ("{model}", "{model}::last4", "{output}/lsa")
_CORPUS = "{data}/oewn_sentences/corpus.jsonl"
_FITTED_ON = f"{_CORPUS} --sample 10000"


def _meta(makes: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Sources, meta-embeddings of them by the options that make each, and their scores."""
    named = " ".join(f"--source {one}" for one in _SOURCES)
    scored = " ".join(f"-e {one}" for one in (*_SOURCES, *(f"{{output}}/{one}" for one in makes)))
    return (
        ("lsa", f"fit static {_CORPUS} --method lsa"),
        *((name, f"train meta {options} {named}") for name, options in makes.items()),
        ("sts", f"eval sts {{data}}/sts15 {{data}}/sts16 {{data}}/stsb {scored}"),
    )


# The labeled pairs at hand; the paper has SNLI. Their own dev split chooses the epoch: by scored
# pairs, the untrained model would be kept.
_NLI = ("nli", "train encoder {data}/sick --objective nli")
_SYSTEMS = "-s all -s cosine@{output}/nli --baseline cosine"
_MODELS = (
    "-e ::last -e ::top-bottom -e ::layers=all -e ::static=average "
    "-e {output}/nli -e {output}/nli::top-bottom"
)
_ALL = (
    Experiment(
        "sbert-wk",
        "table-1",
        "Words by the variance of their layers",
        (("words", f"inspect words {_CORPUS} --limit 10000 --min-count 51"),),
    ),
    Experiment(
        "sbert-wk",
        "table-3",
        "Similarity by cosine; STS-B and SICK-R also trained, as in the paper",
        (
            *_each("eval sts {set} --encoders paper", _STS),
            *(
                (f"{name}-trained", command)
                for name, command in _each(
                    "eval sts {set} --encoders paper --supervised", ("stsb", "sick")
                )
            ),
        ),
    ),
    Experiment(
        "sbert-wk",
        "table-5",
        "Transfer by an MLP",
        _each("eval transfer {set} --encoders paper --classifier mlp --seeds 3", _ENTAILED),
    ),
    Experiment(
        "sbert-wk",
        "table-6",
        "Probing: SentLen, WC and BShift, made from a corpus",
        _probing(
            "eval probe --classifier mlp --seeds 3 -e ::last -e ::last::pooling=cls "
            f"-e ::static=average {_WK} {_WK}::wk-preset=released"
        ),
    ),
    Experiment(
        "sbert-wk",
        "table-7",
        "Ablation",
        _each(
            f"eval sts {{set}} -e ::last {_WK}::wk-words=uniform::wk-layers=uniform "
            f"{_WK}::wk-words=uniform::omega=1 "
            f"{_WK}::wk-words=uniform::omega=0 {_WK}::wk-words=uniform {_WK}::wk-layers=last "
            f"{_WK}::wk-layers=uniform {_WK}",
            _STS[:-1],
        ),
    ),
    Experiment(
        "sbert-wk",
        "figure-1",
        "Cosines between layers",
        (("layers", f"inspect layers {_CORPUS}"),),
    ),
    Experiment(
        "sbert-wk",
        "figure-3",
        "Window and start layer, by cosines and by classifiers",
        (
            ("stsb", "inspect sensitivity {data}/stsb/test.tsv --objective pearson"),
            *_each(
                "eval transfer {set} --classifier mlp --seeds 3 "
                + " ".join(f"{_WK}::window={one}" for one in (1, 3, 4))
                + "".join(f" {_WK}::window=2::start-layer={one}" for one in (0, 1, 2, 3, 4, 5)),
                ("sick", "sst2"),
            ),
        ),
    ),
    Experiment(
        "bert-lc",
        "table-1",
        "Transfer: chosen layers, the last, the last four and random ones",
        _each("eval transfer {set} --layers-search", _TRANSFER),
        also=("table-4",),
    ),
    Experiment(
        "bert-lc",
        "table-2",
        "Similarity: chosen layers beside the same baselines, by their number and without one",
        _each("tune layers {set} --protocol paper", _STS),
        also=("table-3", "figure-2", "figure-3", "figure-4"),
    ),
    Experiment(
        "bert-lc",
        "figure-1",
        "Training size",
        _each(
            "eval transfer {set} --layers-search --train-share 1,1/4,1/16,1/64,1/256",
            ("mr", "subj", "trec"),
        ),
    ),
    Experiment(
        "ma",
        "table-1",
        "Poolings by category, and layers by task",
        (
            *_BY_LAYER,
            (
                "categories",
                "eval categories "
                + " ".join(f"{{output}}/{name}" for name, _ in _BY_LAYER if name != "probing"),
            ),
        ),
        also=("figure-1",),
    ),
    Experiment(
        "ma",
        "table-2",
        "Encoders by category, one of them tuned on inference pairs",
        (
            _NLI,
            ("sts", "eval sts " + " ".join(f"{{data}}/{one}" for one in _STS) + f" {_MODELS}"),
            *(
                (f"transfer-{name}", command)
                for name, command in _each(
                    f"eval transfer {{set}} {_LOGISTIC} {_MODELS}", _ENTAILED
                )
            ),
            *_probing(f"eval probe --seeds 1 {_MODELS}"),
            (
                "categories",
                "eval categories {output}/sts {output}/probe "
                + " ".join(f"{{output}}/transfer-{name}" for name in _ENTAILED),
            ),
        ),
    ),
    Experiment(
        "ma",
        "table-3",
        "Question answering, on other sets than the paper's",
        (
            _NLI,
            ("wikiqa", f"eval qa {{data}}/wikiqa --cross-seeds 2 {_SYSTEMS}"),
            (
                "trecqa",
                f"eval qa {{data}}/trecqa --variant clean --train-split train-all {_SYSTEMS}",
            ),
            (
                "selqa",
                f"eval qa {{data}}/selqa --train-split dev --dev-share 0.2 {_SYSTEMS}",
            ),
        ),
    ),
    Experiment(
        "unsup",
        "table-1",
        "Meta-embeddings of three sources, by method",
        _meta(
            {
                "conc": "--method conc --pooling mean",
                "conc-max": "--method conc --pooling max",
                "avg": "--method avg --pooling mean",
                "avg-max": "--method avg --pooling max",
                "svd": f"{_FITTED_ON} --method svd",
                "gcca": f"{_FITTED_ON} --method gcca",
                "sup": "--method sup --train {data}/stsb --dev {data}/stsb",
                "unsup": f"{_FITTED_ON} --method unsup",
            }
        ),
    ),
    Experiment(
        "unsup",
        "table-2",
        "UNSUP with and without weights of the sources, by pooling",
        _meta(
            {
                f"{pooling}{suffix}": f"{_FITTED_ON} --method unsup --pooling {pooling} --{weights}"
                for pooling in ("max", "mean")
                for weights, suffix in (("weights", ""), ("no-weights", "-equal"))
            }
        ),
    ),
)
