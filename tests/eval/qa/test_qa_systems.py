"""The texts that name systems, and the settings of systems."""

import pytest

from eval.qa.systems import ALL, System, parse_systems
from retriever.errors import ConfigError


def parsed(text):
    (system,) = parse_systems([text])
    return system


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bm25", {}),
        ("rank-bm25", {}),
        ("hybrid:0.7", {"variant": "0.7"}),
        ("hybrid:tuned", {"variant": "tuned"}),
        ("uv:mlp", {"variant": "mlp"}),
        ("uv:mlp:random", {"variant": "mlp", "random_start": True}),
        ("cosine@m::lc:0,6", {"encoder": "m::lc:0,6"}),
        ("uv:mlp:random@m", {"variant": "mlp", "random_start": True, "encoder": "m"}),
        ("cross-encoder", {}),
        ("cross-encoder:ensemble@m", {"ensemble": True, "encoder": "m"}),
        ("cross-encoder:hybrid", {"fused": True}),
        ("cross-encoder:ensemble:hybrid", {"ensemble": True, "fused": True}),
    ],
)
def test_system_text_is_parsed_into_kind_variant_and_encoder(text, expected):
    kind = text.partition("@")[0].partition(":")[0]
    assert parsed(text) == System(text, kind, **expected)


def test_ensemble_and_hybrid_share_the_trained_cross_encoder():
    assert parsed("cross-encoder:ensemble@m").trained == "cross-encoder@m"
    assert parsed("cross-encoder:hybrid").trained == "cross-encoder"


def test_parse_systems_splits_at_commas_outside_encoders_and_expands_named_lists():
    texts = ["bm25, cosine", "cosine@m::lc:0,6", "bm25"]
    assert [system.text for system in parse_systems(texts)] == [
        "bm25",
        "cosine",
        "cosine@m::lc:0,6",
    ]
    assert [system.text for system in parse_systems(["all"])] == list(ALL)
    names = [system.text for system in parse_systems(["heads"])]
    assert names[:3] == ["cosine", "bilinear:linear", "bilinear:linear:random"]
    assert len(names) == 11


def test_system_path_is_a_reranker_if_folder_and_a_run_if_file(tmp_path):
    (tmp_path / "a,b.run").write_text("")
    assert parsed(str(tmp_path / "a,b.run")).kind == "run"
    assert parsed(str(tmp_path)).kind == "saved reranker"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "found none of them"),
        ("bm25@m", "bm25 has no encoder"),
        ("rank-bm25@m", "rank-bm25 has no encoder"),
        ("bm25:1", "after bm25, expected nothing, found ':1'"),
        ("cosine@::lc:0,6,bm25", "found '0,6,bm25'"),
        ("cosine:random", "after cosine, expected nothing"),
        ("uv:deep", "expected linear or mlp"),
        ("uv:random", "expected linear or mlp"),
        ("uv:mlp:cosine", "expected linear or mlp"),
        ("concat:mlp:random", "always starts at random"),
        ("cross-encoder:", "found ':'"),
        ("cross-encoder:mse", "after cross-encoder, expected nothing, or ensemble and hybrid"),
        ("cross-encoder:hybrid:ensemble", "in this order"),
        ("hybrid:2", "a weight from 0 to 1"),
        ("hybrid:nan", "a weight from 0 to 1"),
        ("cosine@m::pooling=none", "pooling"),
    ],
)
def test_invalid_system_text_is_refused(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_systems([text])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
