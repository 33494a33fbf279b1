import pytest

from eval.qa.systems import ALL, System, parse_system, parse_systems
from retriever.errors import ConfigError


def test_texts_name_systems_with_variants_and_encoders():
    assert parse_system("bm25") == System("bm25", "bm25")
    assert parse_system("rank-bm25") == System("rank-bm25", "rank-bm25")
    assert parse_system("uv:mlp") == System("uv:mlp", "uv", "mlp")
    assert parse_system("hybrid:0.7").variant == "0.7"
    found = parse_system("cosine@all-MiniLM-L6-v2::lc:0,6")
    assert (found.kind, found.encoder) == ("cosine", "all-MiniLM-L6-v2::lc:0,6")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cross-encoder", ("", False, False)),
        ("cross-encoder:softmax", ("softmax", False, False)),
        ("cross-encoder:ensemble", ("", True, False)),
        ("cross-encoder:pointwise:hybrid", ("pointwise", False, True)),
        ("cross-encoder:hinge:ensemble:hybrid", ("hinge", True, True)),
    ],
)
def test_a_cross_encoder_names_its_loss_and_what_is_done_with_its_scores(text, found):
    system = parse_system(f"{text}@some-model")
    assert (system.variant, system.ensemble, system.fused) == found
    loss = f":{found[0]}" if found[0] else ""
    assert system.trained == f"cross-encoder{loss}@some-model"
    assert parse_system(text).trained == f"cross-encoder{loss}"


def test_a_head_can_start_at_random_weights():
    found = parse_system("uv:mlp:random@m::lc:0,6")
    assert (found.kind, found.variant, found.random_start) == ("uv", "mlp", True)
    assert found.encoder == "m::lc:0,6"
    assert not parse_system("uv:mlp").random_start
    names = [one.text for one in parse_systems(["heads"])]
    assert names[:3] == ["cosine", "bilinear:linear", "bilinear:linear:random"]
    assert len(names) == 11


def test_several_are_divided_at_commas_but_for_those_of_an_encoder():
    texts = ["bm25, cosine", "cosine@m::lc:0,6", "bm25"]
    assert [one.text for one in parse_systems(texts)] == ["bm25", "cosine", "cosine@m::lc:0,6"]


def test_all_names_every_system_that_needs_no_path():
    assert [one.text for one in parse_systems(["all"])] == list(ALL)
    assert {one.kind for one in parse_systems(["all"])} == {
        "bm25",
        "cosine",
        "hybrid",
        "bilinear",
        "concat",
        "uv",
        "cross-encoder",
    }


def test_a_folder_is_a_reranker_and_a_file_a_run(tmp_path):
    (tmp_path / "a,b.run").write_text("")
    assert parse_systems([str(tmp_path / "a,b.run")])[0].kind == "run"
    assert parse_system(str(tmp_path)).kind == "saved reranker"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense", "found none of them"),
        ("bm25@m", "bm25 has no encoder"),
        ("rank-bm25@m", "rank-bm25 has no encoder"),
        ("rank-bm25:1", "nothing can follow rank-bm25"),
        ("bm25:1", "nothing can follow bm25"),
        ("cosine@a.npy,hybrid@b.npy", "expected one system beside an encoder"),
        ("cosine@::lc:0,6,bm25", "expected one system beside an encoder"),
        ("cosine:linear", "nothing can follow cosine"),
        ("uv:deep", "expected linear or mlp"),
        ("uv:random", "expected linear or mlp"),
        ("uv:mlp:cosine", "expected linear or mlp"),
        ("concat:mlp:random", "always starts at random"),
        ("cosine:random", "nothing can follow cosine"),
        ("cross-encoder:", "found ':'"),
        ("cross-encoder:mse", "expected nothing after cross-encoder, or a loss (hinge, softmax"),
        ("cross-encoder:hybrid:ensemble", "in this order"),
        ("cross-encoder:softmaxensemble", "in this order"),
        ("hybrid:2", "a weight from 0 to 1"),
        ("hybrid:nan", "a weight from 0 to 1"),
        ("cosine@m::pooling=none", "pooling"),
    ],
)
def test_what_names_nothing_is_refused_in_one_line(text, said):
    with pytest.raises(ConfigError) as caught:
        parse_systems([text])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_only_a_tuned_system_has_its_weight_chosen_on_dev():
    assert parse_system("hybrid:tuned").tuned
    assert not parse_system("hybrid:0.5").tuned
