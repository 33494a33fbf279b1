"""Settings of encoders at random, derived from what is declared of each."""

from __future__ import annotations

from hypothesis import reject
from hypothesis import strategies as st

from retriever.encoders import EncoderSettings, encoder_keys
from retriever.errors import ConfigError

NASTY = st.text(
    st.one_of(
        st.sampled_from(":% =\n\t\r\v\f\x00\x1c\x1f\x7f\x85\u2028\u2029,;/\\'\"#&+é狐🚀"),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=12,
)
LAYERS = st.sampled_from(
    ["last", "last2", "last4", "all", "1", "0,2", "2,0", "3,1", "1..3", "-1", "-3..-1,0"]
)
# Most settings are of transformers, and many of SBERT-WK.
RARE = {"static": [None] * 12, "fusion": ["sbert-wk"] * 4}


def _values(one):
    if one.name == "layers":
        return LAYERS
    if one.choices:
        return st.sampled_from([*RARE.get(one.name, ()), *one.choices])
    if one.kind is bool:
        return st.booleans()
    if one.kind is int:
        return st.integers(one.low, one.low + 3) | st.integers(one.low, one.high)
    return st.floats(one.low, one.high) if one.kind is float else NASTY


def sound(make, named):
    """Return `make` of the settings, without those that it refuses by name."""
    while True:
        try:
            return make(**named)
        except ConfigError as error:
            key = str(error).partition(":")[0].replace("-", "_")
            if named.pop(key, None) is None:
                reject()


@st.composite
def encoder_settings(draw, **own):
    """Settings that are possible for some model; `own` has other strategies for some of them."""
    values = {"model": NASTY.filter(bool)} | {key.name: _values(key) for key in encoder_keys()}
    return sound(EncoderSettings, draw(st.fixed_dictionaries({}, optional=values | own)))
