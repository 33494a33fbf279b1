"""The Unigram tokenizer of multilingual-e5-small: ids and offsets of XLMRobertaTokenizer."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from retriever.encoders import find_model
from retriever.encoders.transformer.unigram import Unigram
from retriever.encoders.vocabulary import read_vocabulary
from retriever.errors import ModelError

SCRIPTS = {
    "Latin": "The cat sat on the mat; naïve façade, Ångström, ĳsvogel, Straße, İstanbul'da.",
    "Vietnamese": "Trời hôm nay đẹp quá, chúng ta đi dạo nhé!",
    "Cyrillic": "Съешь ещё этих мягких французских булок, да выпей чаю.",
    "Greek": "Ξεσκεπάζω τὴν ψυχοφθόρα βδελυγμία. Ο ᾽Οδυσσεύς",
    "Armenian": "Բոլոր մարդիկ ծնվում են ազատ ու հավասար։",
    "Georgian": "ყველა ადამიანი იბადება თავისუფალი.",
    "Hebrew": "כָּל בְּנֵי הָאָדָם נוֹלְדוּ בְּנֵי חוֹרִין",
    "Arabic": "يُولَدُ جميعُ الناسِ أحرارًا، ﷺ ﻻ ﷲ ١٢٣",
    "Persian": "می‌خواهم کتاب‌های زیادی بخوانم.",
    "Devanagari": "सभी मनुष्यों को क़ानून के समक्ष समानता; ड़ ढ़ श्री।",
    "Bengali": "সমস্ত মানুষ স্বাধীনভাবে জন্মগ্রহণ করে। ড়া",
    "Gurmukhi": "ਸਾਰਾ ਮਨੁੱਖੀ ਪਰਿਵਾਰ ਆਪਣੀ ਮਹਿਮਾ",
    "Tamil": "மனிதப் பிறவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்; கொ",
    "Telugu": "ప్రతిపత్తిస్వత్వముల విషయమున మానవులెల్లరును",
    "Sinhala": "සියලු මනුෂ්‍යයෝ නිදහස්ව උපත ලබා ඇත",
    "Thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ น้ำ",
    "Lao": "ມະນຸດທຸກຄົນເກີດມາມີສິດເສລີພາບ ນ້ຳ",
    "Khmer": "មនុស្សទាំងអស់កើតមកមានសេរីភាព",
    "Burmese": "လူတိုင်းသည် တူညီလွတ်လပ်သော ဂုဏ်သိက္ခာဖြင့်",
    "Tibetan": "འགྲོ་བ་མིའི་རིགས་རྒྱུད་ཡོངས་ལ་",
    "Ethiopic": "የሰው ልጅ ሁሉ ሲወለድ ነጻና በክብርና በመብትም እኩልነት ያለው ነው።",
    "Chinese": "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心" * 5,
    "Japanese": "すべての人間は、生まれながらにして自由であり、ﾊﾝｶｸ・ガギグ㍿㋿。",
    "Korean": "모든 인간은 태어날 때부터 자유로우며 한글",
    "Mongolian": "ᠬᠦᠮᠦᠨ ᠪᠦᠷ ᠲᠥᠷᠥᠵᠦ",
    "Cherokee": "ᏂᎦᏓ ᎠᏂᏴᏫ ᏂᎨᎫᏓᎸᎾ",
    "Canadian": "ᐃᓅᔪᓕᒫᑦ ᐊᓂᖅᑎᕆᔪᓕᒫᑦ",
    "Runes": "ᚠᛇᚻ᛫ᛒᛦᚦ᛫ᚠᚱᚩᚠᚢᚱ",
}
ODD = [
    "",
    " ",
    "\n\t \r\n",
    "  several   spaces  and\n\nlines\r\nand\ttabs  ",
    "e\u0301te\u0301 o\u0302\u0323 a\u0323\u0302 n\u0303\u0303\u0303 \u0301alone",
    "ＦＵＬＬ　ｗｉｄｔｈ　１２３　！",
    "ﬁne eﬀect oﬃce ﬅ Ǆ ǅ Œ",
    "😀 👩‍👩‍👧‍👦 🇩🇪🇫🇷 👍🏽 ❤️ 1️⃣",
    "zero\u200bwidth\u200cnon\u200djoiner\u2060and\ufeffmarks \u061c\u200e\u200f",
    "control\x00\x01\x1b[0m\x7f\x80\x85\x9f\u2028\u2029\xad",
    "\ufffd \ue000 \U0010ffff \u0378 𝒳𝔘 ㍍ ½ ² ™ … ① Ⅳ ㎏",
    "▁marked▁words ▁ ▁▁ a▁ ▁b",
    "aaaaaaaaaaaaaaaaaaaaaaa =========== ...... 哈哈哈哈哈哈哈 ----- ______",
    "ᄒ\u1161\u11ab각\u1100\u1161 \u0e01\u0e33 \u0958 \u0915\u093c",
    "<s>begin</s> <mask> <pad>x<unk> a<mask>b <mask > < s> ＜mask＞ <MASK> </s",
    "query: what is this? passage: https://example.org/a_b?c=d&e=%20#f user@example.org",
    "x" * 300,
    "語" * 300,
    "\u0300" * 20 + "a" + "\u0301" * 40,
    "漢字かな交じり文" * 100,
]


@pytest.fixture(scope="module")
def folder():
    pytest.importorskip("layer_retriever_e5", reason="the extra `multilingual` is not installed")
    return find_model("multilingual-e5-small")


@pytest.fixture(scope="module")
def tokenizer(folder):
    return Unigram(folder)


@pytest.fixture(scope="module")
def reference(folder):
    """The tokenizer of transformers, from the same pieces, scores and characters."""
    from transformers import XLMRobertaTokenizer

    tensors = load_file(folder.path / "model.safetensors")
    nodes = [""]
    pieces = {}
    for key, id_ in zip(tensors["unigram.edges"], tensors["unigram.pieces"], strict=True):
        nodes.append(nodes[int(key) >> 21] + chr(int(key) & (1 << 21) - 1))
        if id_ >= 0:
            pieces[int(id_)] = nodes[-1]
    assert sorted(pieces) == list(range(250_002))
    scores = tensors["unigram.scores"].tolist()
    return XLMRobertaTokenizer(
        vocab=[(pieces[id_], scores[id_]) for id_ in range(len(scores))],
        _spm_precompiled_charsmap=tensors["unigram.characters"].tobytes(),
    )


def require_equal(tokenizer, reference, texts):
    expected = reference(texts, return_offsets_mapping=True, verbose=False)
    assert tokenizer.tokenize(texts) == expected["input_ids"]
    ids, offsets = tokenizer.tokenize_with_offsets(texts)
    assert ids == expected["input_ids"]
    names = [tokenizer.piece_names(row) for row in ids]
    assert names == list(map(reference.convert_ids_to_tokens, ids))
    for text, row, expected_row in zip(texts, offsets, expected["offset_mapping"], strict=True):
        assert row == expected_row
        assert tokenizer.piece_offsets(text) == row[1:-1]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_text_of_each_script_has_the_pieces_of_transformers(script, tokenizer, reference):
    require_equal(tokenizer, reference, [SCRIPTS[script], SCRIPTS[script].replace(" ", "")])


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
def test_odd_texts_have_the_pieces_of_transformers(text, tokenizer, reference):
    require_equal(tokenizer, reference, [text, f" {text} ", f"{text}{text}"])


def test_every_character_of_the_planes_in_use_has_the_pieces_of_transformers(tokenizer, reference):
    codes = [code for code in range(0x20000) if not 0xD800 <= code < 0xE000]
    texts = [
        " ".join(f"a{chr(code)}b{chr(code)}" for code in codes[start : start + 512])
        for start in range(0, len(codes), 512)
    ]
    assert tokenizer.tokenize(texts) == reference(texts, verbose=False)["input_ids"]


characters = st.one_of(
    st.characters(exclude_categories=["Cs"]),
    st.sampled_from("".join(SCRIPTS.values()) + "".join(ODD)),
    st.sampled_from(["<s>", "</s>", "<mask>", "▁", " ", "\u0301", "\u200d", "e\u0301", "\r\n"]),
)


@given(texts=st.lists(st.lists(characters, max_size=40).map("".join), max_size=4))
@example(texts=["a\u0301\u0301<mask>\u0301"])
def test_any_texts_have_the_pieces_of_transformers(texts, tokenizer, reference):
    if texts:
        require_equal(tokenizer, reference, texts)


@pytest.mark.parametrize("limit", [5, 6, 9, 12, 40])
def test_long_texts_and_pairs_are_cut_as_by_transformers(limit, tokenizer, reference):
    left = ["one two three four five six", "a", "人人生而自由", "", "one two three four five six"]
    right = ["a", "one two three four five six", "人人生而自由", "a b c d e f g h i j", "seven"]
    expected = reference(left, truncation=True, max_length=limit)["input_ids"]
    assert tokenizer.tokenize(left, limit) == expected
    whole = reference(left, right)["input_ids"]
    cut = reference(left, right, truncation=True, max_length=limit)["input_ids"]
    pairs = tokenizer.tokenize_pairs(left, right, limit)
    assert pairs.ids == cut
    assert pairs.cut == sum(len(ids) > limit for ids in whole)
    assert pairs.types == [[0] * len(ids) for ids in cut]


def test_more_words_than_the_cache_and_a_batch_hold_change_no_pieces(
    tokenizer, folder, monkeypatch
):
    texts = [*SCRIPTS.values(), *ODD]
    expected = tokenizer.tokenize(texts)
    monkeypatch.setattr("retriever.encoders.transformer.unigram._CACHED_WORDS", 3)
    monkeypatch.setattr("retriever.encoders.transformer.unigram._BATCH_CHARACTERS", 10)
    small = Unigram(folder)
    assert [small.tokenize([text])[0] for text in texts] == expected
    assert small.tokenize(texts) == expected


@pytest.fixture
def tiny(tmp_path):
    """Write a folder of a few pieces, and return it after `change` of its tensors."""

    def write(change):
        keys = [ord("a"), ord("▁"), (2 << 21) + ord("a")]
        tensors = {
            "unigram.edges": np.array(keys, np.int64),
            "unigram.pieces": np.array([1, -1, 2], np.int32),
            "unigram.scores": np.array([0, -1, -2], np.float32),
            # A table of 256 empty cells: no character is replaced.
            "unigram.characters": np.array([1024, *[0] * 256], np.uint32).view(np.uint8),
        }
        change(tensors)
        save_file(tensors, tmp_path / "model.safetensors")
        settings = {"begin": 0, "end": 0, "unknown": 0, "special": {"<s>": 0}}
        (tmp_path / "unigram.json").write_text(json.dumps(settings))
        return type("Folder", (), {"path": tmp_path})

    return write


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("unigram.edges", None),
        ("unigram.edges", np.zeros(2, np.int64)),
        ("unigram.edges", np.zeros((3, 1), np.int64)),
        ("unigram.edges", np.zeros(3, np.float32)),
        ("unigram.edges", np.array([97, 9601, 98], np.int64)),
        ("unigram.pieces", np.array([1, 2, 3], np.int32)),
        ("unigram.pieces", np.array([1, 2, -2], np.int32)),
        ("unigram.scores", np.array([0, np.nan, 0], np.float32)),
        ("unigram.scores", np.zeros(0, np.float32)),
        ("unigram.characters", np.zeros(3, np.uint8)),
    ],
)
def test_damaged_pieces_are_refused_in_one_line(name, values, tiny):
    def damage(tensors):
        del tensors[name]
        if values is not None:
            tensors[name] = values

    with pytest.raises(ModelError, match=r"model\.safetensors: its pieces cannot be read") as error:
        Unigram(tiny(damage))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"begin": 0}',
        '{"begin": 0, "end": 3, "unknown": 0, "special": {}}',
        '{"begin": 0, "end": 1, "unknown": "0", "special": {}}',
        '{"begin": 0, "end": 1, "unknown": 0, "special": {"<s>": -1}}',
        '{"begin": 0, "end": 1, "unknown": 0, "special": 5}',
        '{"begin": 0, "end": 1, "unknown": 0, "special": {}}',
        '{"begin": 0, "end": 1, "unknown": 0, "special": {"": 0}}',
    ],
)
def test_damaged_settings_are_refused_in_one_line(content, tiny):
    folder = tiny(lambda tensors: None)
    assert Unigram(folder).tokenize(["a b"]) == [[0, 2, 0, 0]]
    (folder.path / "unigram.json").write_text(content)
    with pytest.raises(ModelError, match=r"unigram\.json") as error:
        Unigram(folder)
    assert "\n" not in str(error.value)


def test_whole_words_are_told_from_parts_without_loading_the_model(folder):
    is_piece = read_vocabulary("multilingual-e5-small")
    words = ["weather", "год", "天気", "मौसम", "qzxv", "\ud800", "weatherq"]
    assert [word for word in words if is_piece(word)] == words[:4]


def test_a_package_with_another_byte_is_refused(folder, tmp_path, monkeypatch):
    from retriever.encoders import model_folders

    copy = shutil.copytree(folder.path, tmp_path / "layer_retriever_e5/model")
    with (copy / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x17")
    monkeypatch.setattr(model_folders, "find_path", lambda name, download: copy)
    with pytest.raises(ModelError, match="reinstall the package layer-retriever-e5"):
        find_model("multilingual-e5-small")
