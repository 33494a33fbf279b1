"""Fine-tuning an encoder on data, and saving it where it is better than before."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from eval.progress import Notify, Progress, ignore, silent
from eval.qa.rerankers import FittedTransformer, epoch_line, kept_of, steps_shown
from eval.reports import environment
from eval.training.data import EncoderData, EncoderFitSettings, read_examples
from retriever.encoders.training import (
    TrainableEncoder,
    check_target,
    fitting_objective,
    read_training,
    train_encoder,
    write_encoder,
)
from retriever.training import Checkpoint, Epoch, Objective, TrainingSet, require_same


@dataclass(frozen=True, slots=True)
class FittedEncoder(FittedTransformer):
    """An encoder that was fine-tuned and saved; it may be the untrained one."""

    objective: Objective

    @property
    def improved(self) -> bool:
        """Whether an epoch is better on dev than the untrained encoder."""
        return self.kept.epoch > 0

    def to_json(self) -> dict[str, object]:
        """The result as JSON values."""
        return {
            **FittedTransformer.to_json(self),
            "objective": self.objective,
            "measure": self.measure,
            "improved": self.improved,
            "dev": self.kept.dev,
            "dev_before": self.curve[0].dev,
        }

    def saved(self) -> str:
        """What was saved, up to the dev measure before training."""
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

    Interrupted, the same call resumes from the last checkpoint, which lies beside the folder. A
    folder that the same call has written before is left as it is.

    Data are a folder of questions, of scored or of labeled pairs; files of pairs; splits of a
    question set; or pairs to draw from a corpus. The folder gets the form of sentence-transformers.
    `restart` starts over instead of resuming.

    Raises:
        ConfigError: the folder holds something else or the result of another training, the
            objective does not fit the data, the model cannot be trained so, or a checkpoint is of
            another training.
        BadInputError: there is nothing to train on or to choose on.
        What `read_examples` and `Encoder.load` raise of reading and loading.
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
    # Everything that decides the weights.
    identity = {
        "encoder": str(encoder.spec),
        "fingerprint": encoder.spec.fingerprint,
        "settings": asdict(training),
        "train": examples.train.digest(),
        "dev": dev.digest,
        "measure": dev.name,
    }
    found = None if restart else read_training(folder)
    if found is not None:
        require_same(folder, identity, found.get("identity"))
        curve = tuple(Epoch(**one) for one in found["curve"])
        kept = kept_of(curve, training.tolerance, untrained=True)
        return FittedEncoder(folder, dev.name, curve, kept, objective)
    checkpoint = Checkpoint(folder.with_name(f".{folder.name}.checkpoint"), identity)
    if restart:
        checkpoint.remove()
    train = examples.train
    size = len(train.questions) if isinstance(train, TrainingSet) else len(train)
    notify(
        f"{examples.name}: {size:,} to train on, {dev.units:,} to choose on; objective {objective}"
    )
    curve = train_encoder(
        encoder,
        train,
        training,
        dev.score,
        checkpoint=checkpoint,
        on_step=steps_shown("fine-tuning", progress),
        on_epoch=lambda one: notify(f"fine-tuning: {epoch_line(one, dev.name)}"),
    )
    kept = kept_of(curve, training.tolerance, untrained=True)
    provenance = {
        "identity": identity,
        "data": {"name": examples.name, "examples": size, "dev": dev.units},
        "kept_epoch": kept.epoch,
        "curve": [asdict(one) for one in curve],
        "bfloat16": encoder.backbone.autocast,
        "versions": environment(settings.loading.device),
    }
    write_encoder(folder, encoder, provenance)
    checkpoint.remove()
    return FittedEncoder(folder, dev.name, curve, kept, objective)
