"""The weight of each word of a text in its SBERT-WK vector, and of the layers in each word."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from eval.inspect.figures import weights_figure
from eval.inspect.states import Inspection
from eval.progress import Notify, ignore
from eval.tables import on_one_line
from eval.vectors import Loading
from retriever.encoders.fusion.word_weights import Unit, WeightedWord, word_weights
from retriever.encoders.loading.resolution import sbert_wk_settings
from retriever.encoders.settings import EncoderSettings, parse_encoder
from retriever.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, eq=False)
class WeightInspection:
    """The result of `inspect_weights`.

    Attributes:
        encoder: text form.
        passage: the text.
        cut: whether it was longer than the window and lost its end.
        unit: "word" or "piece".
        first_layer: number of the first fused hidden state.
        words: in the order of the text.
    """

    encoder: str
    passage: str
    cut: bool
    unit: Unit
    first_layer: int
    words: tuple[WeightedWord, ...]

    def text(self) -> str:
        """The words on one line, each followed by its weight."""
        return " ".join(f"{on_one_line(word.text)}({word.weight:.3f})" for word in self.words)

    def to_json(self) -> dict[str, object]:
        """All numbers."""
        return {
            "encoder": self.encoder,
            "text": self.passage,
            "cut": self.cut,
            "unit": self.unit,
            "first_layer": self.first_layer,
            "words": [asdict(word) for word in self.words],
        }

    def figure(self) -> Figure:
        """The weights of words and layers; see `weights_figure`."""
        return weights_figure(self.words, self.first_layer)


def inspect_weights(
    text: str,
    encoder: str = "",
    *,
    unit: Unit = "word",
    loading: Loading | None = None,
    notify: Notify = ignore,
) -> WeightInspection:
    """Compute the weight of each word of a text in its SBERT-WK vector.

    Args:
        text: not blank.
        encoder: text form; the fusion is SBERT-WK without being named.
        unit: whether the pieces of a word are joined.
        loading: where the model comes from.
        notify: called with a warning if the text is cut at the window.

    Raises:
        ConfigError: the encoder has another fusion, or layers that cannot be read one by one.
        BadInputError: the mask includes no piece of the text.
        What `Encoder.load` raises.
    """
    model = (loading or Loading()).load(as_sbert_wk(encoder))
    settings = sbert_wk_settings(model.spec.settings, model.depth)
    inspection = Inspection(model, [text], notify=notify)
    (one,) = inspection
    words = word_weights(one.text, one.states, settings, unit)
    return WeightInspection(
        encoder=str(model.spec),
        passage=one.text,
        cut=bool(inspection.read.cut),
        unit=unit,
        first_layer=settings.start_layer or 0,
        words=tuple(words),
    )


def sbert_wk_form(form: str) -> str:
    """A text form with SBERT-WK as the fusion, if it names neither a fusion nor a preset."""
    _, *settings = form.split("::")
    named = any(one.startswith("fusion=") or "=" not in one for one in settings)
    return form if named else f"{form}::fusion=sbert-wk"


def as_sbert_wk(form: str) -> EncoderSettings:
    """The settings of an encoder whose fusion is SBERT-WK, without being named.

    Raises:
        ConfigError: the form names another fusion, or is malformed.
    """
    asked = parse_encoder(sbert_wk_form(form))
    if asked.fusion != "sbert-wk":
        raise ConfigError(f"fusion: expected sbert-wk, found {asked.fusion}; leave it out")
    return asked
