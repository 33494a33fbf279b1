"""Settings for fitting static encoders."""

from __future__ import annotations

from dataclasses import dataclass

from retriever.encoders.settings import Static
from retriever.errors import ConfigError
from retriever.settings import Checked, setting

# Methods of static encoders that are fitted on a corpus.
FITTED = ("sif", "usif")
_SAMPLE_HELP = "Maximum number of texts for components or lsa, drawn at random."


@dataclass(frozen=True, slots=True)
class LSASettings(Checked):
    """Settings of LSA."""

    dimensions: int = setting(300, "lsa: number of dimensions.", low=1, section="Encoder")
    min_df: int = setting(2, "lsa: leave out words in fewer texts than this.", low=1)
    max_df: float = setting(
        0.5,
        "lsa: leave out words in more than this share of the texts.",
        low=0,
        high=1,
        low_open=True,
    )
    max_words: int = setting(
        100_000, "lsa: maximum number of words; the words in the most texts are kept.", low=1
    )
    sample: int = setting(100_000, _SAMPLE_HELP, low=1)
    seed: int = setting(0, "Random seed of the sample.")


@dataclass(frozen=True, slots=True)
class FitSettings(Checked):
    """Settings of fitting `sif` and `usif`."""

    sample: int = setting(100_000, _SAMPLE_HELP, low=1)
    components: int | None = setting(
        None, "Number of components to remove.", low=0, default_text="1 for sif, 5 for usif"
    )
    a: float | None = setting(
        None,
        "SIF's smoothing parameter; usif computes its own.",
        low=0,
        low_open=True,
        default_text="0.001",
    )
    seed: int = setting(0, "Random seed of the sample.")

    def check(self, method: Static) -> None:
        """Refuse settings that a method does not use."""
        unused_settings = {"a": self.a, "components": self.components}
        if method == "usif":
            unused_settings = {"a": self.a}
        elif method == "sif":
            unused_settings = {}
        for name, value in unused_settings.items():
            if value is not None:
                reason = "derives it" if method == "usif" else "has nothing to fit"
                raise ConfigError(f"{name}: {method} {reason}; leave it out")
