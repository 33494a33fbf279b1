"""Fine-tuning an encoder on data, and saving it where it is better than before."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval.figures import learning_figure
from eval.metrics.comparison import percent
from eval.progress import Notify, Progress, ignore, silent
from eval.qa.rerankers import steps_shown
from eval.qa.systems import QuestionSettings
from eval.tables import Table, table_lines
from eval.training.data import EncoderData, EncoderExamples, ReadingSettings, read_examples
from eval.vectors import Loading
from retriever.encoders.training.examples import check_objective, natural_objective
from retriever.encoders.training.folder import check_target, read_training, write_encoder
from retriever.encoders.training.model import TrainableEncoder
from retriever.encoders.training.settings import EncoderTrainingSettings, Objective
from retriever.encoders.training.trainer import train_encoder
from retriever.training.checkpoint import Checkpoint, require_same
from retriever.training.settings import Epoch, kept_epoch

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class EncoderFitSettings:
    """How an encoder is fine-tuned on data.

    Attributes:
        encoder: text form of what is fine-tuned; empty for the bundled model.
        objective: None takes the one for the kind of data: ``sts`` for scored pairs, ``nli`` for
            labeled ones, ``mnr`` for questions or anchors with passages.
        training: everything else; its own objective is not read.
        loading: where the model comes from.
        data: how a question set is read; `dev_share` is the share of any data to hold out.
        dev: a file or folder to choose epochs on instead; None takes the dev split of the data, or
            a part of them.
    """

    encoder: str = ""
    objective: Objective | None = None
    training: EncoderTrainingSettings = field(default_factory=EncoderTrainingSettings)
    loading: Loading = field(default_factory=Loading)
    data: QuestionSettings = field(default_factory=QuestionSettings)
    dev: Path | None = None


@dataclass(frozen=True, slots=True)
class FittedEncoder:
    """An encoder that was fine-tuned and saved.

    Attributes:
        folder: where it was saved; an encoder like any other.
        objective: what it was trained for.
        measure: name of the dev measure.
        curve: all epochs, the untrained encoder first.
        kept: the epoch whose weights were saved; 0 if none is better than the untrained encoder.
    """

    folder: Path
    objective: Objective
    measure: str
    curve: tuple[Epoch, ...]
    kept: Epoch

    @property
    def improved(self) -> bool:
        """Whether an epoch is better on dev than the untrained encoder."""
        return self.kept.epoch > 0

    def to_json(self) -> dict[str, object]:
        """The result as JSON values."""
        return {
            "output": str(self.folder),
            "objective": self.objective,
            "measure": self.measure,
            "improved": self.improved,
            "kept_epoch": self.kept.epoch,
            "dev": self.kept.dev,
            "dev_before": self.curve[0].dev,
            "curve": [asdict(one) for one in self.curve],
        }

    def text(self) -> str:
        """The learning curve, and what was saved."""
        rows = tuple(
            (str(one.epoch), f"{one.loss:.4f}" if one.epoch else "", percent(one.dev))
            for one in self.curve
        )
        before = percent(self.curve[0].dev)
        if self.improved:
            saved = (
                f"{self.folder}: dev {self.measure} {percent(self.kept.dev)} after epoch "
                f"{self.kept.epoch}; {before} before training"
            )
        else:
            saved = (
                f"{self.folder}: the untrained encoder, since no epoch is better on dev: "
                f"{self.measure} {before} before training"
            )
        table = Table(("epoch", "loss", f"dev {self.measure}"), rows)
        return "\n".join([*table_lines(table), saved])

    def figure(self) -> Figure:
        """The learning curve."""
        curve = tuple(one.dev for one in self.curve)
        return learning_figure({self.folder.name: (curve,)}, measure=self.measure)


def fit_encoder(
    data: EncoderData,
    folder: Path,
    settings: EncoderFitSettings | None = None,
    *,
    restart: bool = False,
    progress: Progress = silent,
    notify: Notify = ignore,
) -> FittedEncoder:
    """Fine-tune an encoder, and save the best epoch on dev, the untrained encoder included.

    Interrupted, the same call resumes from the last checkpoint, which lies beside the folder. A
    folder that the same call has written before is left as it is.

    Args:
        data: a folder of questions, of scored or of labeled pairs; files of pairs; splits of a
            question set; or pairs to draw from a corpus.
        folder: where the encoder is saved, in the form of sentence-transformers.
        settings: how it is fine-tuned; None takes the defaults.
        restart: start over instead of resuming.
        progress: of long stages.
        notify: is called with lines that a person should read.

    Raises:
        ConfigError: the folder holds something else or the result of another training, the
            objective does not fit the data, the model cannot be trained so, or a checkpoint is of
            another training.
        BadInputError: there is nothing to train on or to choose on.
        What `read_examples` and `Encoder.load` raise of reading and loading.
    """
    settings = settings or EncoderFitSettings()
    check_target(folder)
    examples = read_examples(
        data,
        ReadingSettings(
            settings.objective,
            settings.training.sampling.negatives,
            settings.data,
            settings.dev,
            settings.encoder,
            settings.loading,
        ),
        progress,
        notify,
    )
    objective = settings.objective or natural_objective(examples.train)
    check_objective(objective, examples.train)
    training = replace(settings.training, objective=objective)
    encoder = TrainableEncoder.load(
        settings.encoder, device=settings.loading.device, download=settings.loading.download
    )
    identity = _identity(examples, training, encoder)
    curve = None if restart else _earlier(folder, identity)
    if curve is None:
        curve = _fit(examples, training, encoder, folder, identity, restart, progress, notify)
    kept = kept_epoch(curve, training.tolerance, untrained=True)
    assert kept is not None
    return FittedEncoder(folder, objective, examples.dev.name, curve, kept)


def _fit(
    examples: EncoderExamples,
    training: EncoderTrainingSettings,
    encoder: TrainableEncoder,
    folder: Path,
    identity: dict[str, Any],
    restart: bool,
    progress: Progress,
    notify: Notify,
) -> tuple[Epoch, ...]:
    checkpoint = Checkpoint(folder.with_name(f".{folder.name}.checkpoint"), identity)
    if restart:
        checkpoint.remove()
    notify(
        f"{examples.name}: {_size(examples):,} to train on, {len(examples.dev):,} to choose on; "
        f"objective {training.objective}"
    )
    curve = train_encoder(
        encoder,
        examples.train,
        training,
        examples.dev,
        checkpoint=checkpoint,
        on_step=steps_shown("fine-tuning", progress),
        on_epoch=lambda one: notify(_line(one, examples.dev.name)),
    )
    write_encoder(folder, encoder, _provenance(examples, training, encoder, identity, curve))
    checkpoint.remove()
    return curve


def _line(epoch: Epoch, measure: str) -> str:
    dev = f"dev {measure} {100 * epoch.dev:.2f}"
    if epoch.epoch == 0:
        return f"before training: {dev}"
    return f"fine-tuning: epoch {epoch.epoch}, loss {epoch.loss:.4f}, {dev}"


def _size(examples: EncoderExamples) -> int:
    train = examples.train
    return len(train.questions) if hasattr(train, "questions") else len(train)


def _earlier(folder: Path, identity: dict[str, Any]) -> tuple[Epoch, ...] | None:
    """The learning curve of the same training in a folder, None if there is no training."""
    found = read_training(folder)
    if found is None:
        return None
    require_same(folder, identity, found.get("identity"))
    return tuple(Epoch(**one) for one in found["curve"])


def _identity(
    examples: EncoderExamples, training: EncoderTrainingSettings, encoder: TrainableEncoder
) -> dict[str, Any]:
    """Everything that decides the weights, as JSON values."""
    return {
        "encoder": str(encoder.spec),
        "fingerprint": encoder.spec.fingerprint,
        "settings": asdict(training),
        "train": examples.train.digest(),
        "dev": examples.dev.digest(),
        "measure": examples.dev.name,
    }


def _provenance(
    examples: EncoderExamples,
    training: EncoderTrainingSettings,
    encoder: TrainableEncoder,
    identity: dict[str, Any],
    curve: tuple[Epoch, ...],
) -> dict[str, Any]:
    kept = kept_epoch(curve, training.tolerance, untrained=True)
    return {
        "identity": identity,
        "data": {
            "name": examples.name,
            "examples": _size(examples),
            "dev": len(examples.dev),
        },
        "kept_epoch": kept.epoch if kept else 0,
        "curve": [asdict(one) for one in curve],
        "bfloat16": encoder.backbone.autocast,
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("layer-retriever", "torch", "transformers")},
        },
    }
