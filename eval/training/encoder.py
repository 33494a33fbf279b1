"""Fine-tuning of an encoder on data; the result is saved if it is better on dev."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from eval.progress import Notify, Progress, ignore, silent
from eval.qa.rerankers import FittedTransformer, best_of_curve, epoch_line, steps_shown
from eval.reports import environment
from eval.training.data import EncoderData, EncoderExamples, EncoderFitSettings, read_examples
from retriever.encoders.training import (
    TrainableEncoder,
    check_target,
    fitting_objective,
    read_training,
    train_encoder,
    write_encoder,
)
from retriever.training import (
    Checkpoint,
    EncoderTrainingSettings,
    Epoch,
    Objective,
    require_same,
)


@dataclass(frozen=True, slots=True)
class FittedEncoder(FittedTransformer):
    """An encoder that was fine-tuned and saved, or the untrained one if no epoch is better."""

    objective: Objective

    @property
    def improved(self) -> bool:
        """Whether an epoch is better on dev than the untrained encoder."""
        return self.best_epoch.epoch > 0

    def to_json(self) -> dict[str, object]:
        """Return the result as JSON values."""
        return {
            **FittedTransformer.to_json(self),
            "objective": self.objective,
            "measure": self.measure,
            "improved": self.improved,
            "dev": self.best_epoch.dev,
            "dev_before": self.curve[0].dev,
        }

    def saved(self) -> str:
        """Describe what was saved, up to the dev measure before training."""
        if self.improved:
            return FittedTransformer.saved(self)
        return f"the untrained encoder, since no epoch is better on dev: {self.measure} "


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

    After an interruption, the same call resumes from the last checkpoint, beside the folder. A
    folder that the same call has completed is left as it is.

    Args:
        data: a folder of questions, of scored or of labeled pairs; files of pairs; splits of a
            question set; or pairs to draw from a corpus.
        folder: the folder to write, in the form of sentence-transformers.
        settings: encoder, objective and training.
        restart: start over instead of resuming.
        progress: shows the progress of each stage.
        notify: shows one line of news, such as the measure after an epoch.

    Raises:
        ConfigError: the folder holds something else, the folder or a checkpoint belongs to another
            training, the objective does not fit the data, or the model cannot be trained with it.
        BadInputError: there is nothing to train on or to choose on.
        Exception: see `read_examples` and `Encoder.load`.
    """
    settings = settings or EncoderFitSettings()
    check_target(folder)
    examples = read_examples(data, settings, progress, notify)
    objective = fitting_objective(settings.training.objective, examples.train)
    training = replace(settings.training, objective=objective)
    encoder = TrainableEncoder.load(
        settings.encoder, device=settings.loading.device, download=settings.loading.download
    )
    dev = examples.dev
    identity = _training_identity(encoder, training, examples)
    earlier = None if restart else read_training(folder)
    if earlier is not None:
        require_same(folder, identity, earlier.get("identity"))
        curve = tuple(Epoch(**epoch) for epoch in earlier["curve"])
        best_epoch = best_of_curve(curve, training.tolerance, untrained=True)
        return FittedEncoder(folder, dev.name, curve, best_epoch, objective)
    checkpoint = Checkpoint(folder.with_name(f".{folder.name}.checkpoint"), identity)
    if restart:
        checkpoint.remove()
    size = examples.train_size
    notify(
        f"{examples.name}: {size:,} to train on, {dev.units:,} to choose on; objective {objective}"
    )
    curve = train_encoder(
        encoder,
        examples.train,
        training,
        dev.score,
        checkpoint=checkpoint,
        on_step=steps_shown("fine-tuning", progress),
        on_epoch=lambda epoch: notify(f"fine-tuning: {epoch_line(epoch, dev.name)}"),
    )
    best_epoch = best_of_curve(curve, training.tolerance, untrained=True)
    provenance = {
        "identity": identity,
        "data": {"name": examples.name, "examples": size, "dev": dev.units},
        "kept_epoch": best_epoch.epoch,
        "curve": [asdict(epoch) for epoch in curve],
        "bfloat16": encoder.backbone.autocast,
        "versions": environment(settings.loading.device),
    }
    write_encoder(folder, encoder, provenance)
    checkpoint.remove()
    return FittedEncoder(folder, dev.name, curve, best_epoch, objective)


def _training_identity(
    encoder: TrainableEncoder, training: EncoderTrainingSettings, examples: EncoderExamples
) -> dict[str, object]:
    """Return all inputs that determine the weights."""
    return {
        "encoder": str(encoder.spec),
        "fingerprint": encoder.spec.fingerprint,
        "settings": asdict(training),
        "train": examples.train.digest(),
        "dev": examples.dev.digest,
        "measure": examples.dev.name,
    }
