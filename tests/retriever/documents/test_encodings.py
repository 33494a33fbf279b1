"""Detection of text encodings, and bytes that the encoding cannot decode."""

from __future__ import annotations

import random
import subprocess
import sys
import time

import pytest

from retriever import CorpusReader, SourceError
from retriever.documents import TextForm
from retriever.documents.decoding import decode, detect_encoding
from tests.retriever.documents import file_samples as samples
from tests.retriever.documents.source_samples import read, write

GERMAN = "Über den Bäumen kreist früh ein großer Häher; die Vögel schweigen, bis er müde wird.\n"
TEXTS = {
    "cp1252": GERMAN + "Señor Núñez comió en el café de la estación.\n",
    "cp1250": "Zażółć gęślą jaźń, a potem śpij spokojnie; źrebię pójdzie na łąkę.\n" * 2,
    "iso8859-2": "Včera večer přišel starý mlynář a přinesl čerstvý chléb z pšenice.\n" * 2,
    "cp1251": "Старый мельник принёс вчера вечером свежий хлеб из пшеницы.\n",
    "koi8-r": "Старый мельник принёс вчера вечером свежий хлеб из пшеницы.\n",
    "cp866": "Старый мельник принёс вчера вечером свежий хлеб из пшеницы.\n",
    "cp1253": "Ο γέρος μυλωνάς έφερε χθες το βράδυ φρέσκο ψωμί από σιτάρι.\n",
    "cp1254": "Yaşlı değirmenci dün akşam buğdaydan taze ekmek getirdi, çocuğa verdi.\n" * 2,
    "cp1255": "הטוחן הזקן הביא אתמול בערב לחם טרי מחיטה לילדים הקטנים\n",
    "cp1256": "أحضر الطحان العجوز خبزا طازجا من القمح مساء أمس إلى القرية\n",
    "cp932": "年老いた粉屋は昨日の夕方、小麦の新しいパンを村に持ってきた。\n",
    "euc_jp": "年老いた粉屋は昨日の夕方、小麦の新しいパンを村に持ってきた。\n",
    "iso2022_jp": "年老いた粉屋は昨日の夕方、小麦の新しいパンを村に持ってきた。\n",
    "gb18030": "老磨坊主昨天晚上带来了新鲜的小麦面包，孩子们非常高兴。\n" * 2,
    "big5hkscs": "老磨坊主昨天晚上帶來了新鮮的小麥麵包，孩子們非常高興。\n" * 2,
    "cp949": "늙은 방앗간 주인이 어제 저녁 밀로 만든 신선한 빵을 가져왔다.\n",
    "cp874": "คนโรงสีชรานำขนมปังสดจากข้าวสาลีมาที่หมู่บ้านเมื่อเย็นวานนี้\n",
    "utf-16-le": "The old miller brought fresh bread of wheat last night.\n",
    "utf-16-be": "Старый мельник принёс вчера вечером свежий хлеб из пшеницы.\n",
}


@pytest.mark.parametrize("encoding", TEXTS)
def test_a_text_in_any_encoding_is_read_and_named(tmp_path, encoding):
    text = TEXTS[encoding]
    write(tmp_path / "mill.txt", text.encode(encoding))
    reader = CorpusReader(tmp_path)
    assert [document.text for document in reader] == [text.strip()]
    assert list(reader.recoded) == [encoding]
    assert not reader.files.losses


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        ("naïve Müller".encode("cp1252"), "cp1252"),
        ("Le café à l’été, déjà".encode("cp1252"), "cp1252"),
        ("Ärger über “dies”".encode("cp1252"), "cp1252"),
        ("a caf\xe9 on the corner".encode("latin-1"), "cp1252"),
        ("it\x92s \xa9 2020".encode("latin-1"), "cp1252"),
        ("naïve".encode(), None),
        ("naïve à".encode()[:-1], None),
        ("naïve".encode() + b" \xff", None),
        (b"plain", None),
        ("\ufeffnaïve".encode("utf-16-le"), "utf-16"),
        ("\ufeffnaïve".encode("utf-32-be"), "utf-32"),
    ],
)
def test_encoding_is_detected_from_byte_order_mark_or_short_western_text(content, encoding):
    assert detect_encoding(content) == encoding


@pytest.mark.parametrize(
    ("content", "text", "replaced"),
    [
        (b"one \xff two", "one � two", 1),
        (b"the ibis\xc3 stands", "the ibis� stands", 1),
        (GERMAN.encode() * 5 + b"then \xe4 \xfc \xff", GERMAN * 5 + "then � � �", 3),
        # A character cut at the end is one bad byte, whatever it has.
        (b"it costs 5 " + "€".encode()[:2], "it costs 5 �", 1),
        ("a U+FFFD � of its own".encode(), "a U+FFFD � of its own", 0),
        (b"a heron\0 waits", "a heron� waits", 1),
        # What a computer that lost its power left at the end.
        (b"a heron waits" + bytes(3000), "a heron waits�", 1),
    ],
)
def test_bad_bytes_are_replaced_and_counted(tmp_path, content, text, replaced):
    write(tmp_path / "notes.md", content)
    reader = CorpusReader(tmp_path)
    assert [document.text for document in reader] == [text.strip()]
    assert not reader.recoded
    number = "1 bad byte" if replaced == 1 else f"{replaced} bad bytes"
    expected = f"{tmp_path}/notes.md: {number} (not utf-8, or NUL) replaced by U+FFFD"
    assert reader.files.named == ([expected] if replaced else [])
    assert reader.files.losses["bytes"] == bool(replaced)


@pytest.mark.parametrize("bad", [50, 30, 12])
def test_damaged_utf8_is_refused_with_its_line(tmp_path, bad):
    words = ["früh".encode()] * 50 + ["früh".encode("cp1252")] * bad
    random.Random(1).shuffle(words)
    write(tmp_path / "mixed.txt", b"first\n" + b" ".join(words))
    write(tmp_path / "sound.txt", "sound")
    reader = CorpusReader(tmp_path, on_error="skip-files")
    assert [document.id for document in reader] == ["sound.txt"]
    [problem] = reader.problems
    assert problem.startswith(f"{tmp_path}/mixed.txt:2: invalid UTF-8: byte 0xfc")
    share = f"{100 / (100 + bad):.0%} of its bytes above 127 are valid UTF-8"
    assert f"{share}, so that it is damaged" in problem


@pytest.mark.parametrize("content", [bytes(range(256)) * 8, b"a\0b\0\0c" * 50])
def test_binary_content_is_refused_as_text(tmp_path, content):
    with pytest.raises(SourceError, match=r"invalid UTF-8|NUL byte"):
        read(write(tmp_path / "program.md", content))


def test_a_named_encoding_decides_and_its_bad_bytes_are_counted(tmp_path):
    path = write(tmp_path / "a.md", TEXTS["cp1253"].encode("cp1253") + b"a \xd2\xff b")
    reader = CorpusReader(path, form=TextForm("cp1253"))
    [document] = reader
    assert document.text.endswith("a �� b")
    assert reader.files.named[0].endswith("2 bad bytes (not cp1253, or NUL) replaced by U+FFFD")
    with pytest.raises(SourceError, match="not ascii"):
        read(write(tmp_path / "b.md", GERMAN), form=TextForm("ascii"))


def test_pages_chapters_and_mails_without_a_charset_are_read_and_named(tmp_path):
    pytest.importorskip("trafilatura")
    russian = TEXTS["cp1251"].strip()
    page = f"<main><p>{russian}</main>".encode("cp1251")
    write(tmp_path / "a.html", page)
    write(tmp_path / "b.epub", samples.epub(parts={"OEBPS/a.xhtml": page}))
    write(tmp_path / "c.eml", b"Subject: x\n\n" + russian.encode("koi8-r"))
    write(tmp_path / "d.html", f"<main><p>{GERMAN}".encode() + b"\xff")
    write(tmp_path / "e.html", f"<meta charset=koi8-r><p>{russian}".encode("koi8-r"))
    reader = CorpusReader(tmp_path)
    texts = {document.id: document.text for document in reader}
    assert texts["a.html"] == texts["c.eml"] == texts["e.html"] == russian
    assert texts["b.epub"].startswith(russian)
    assert {name: count.records for name, count in reader.recoded.items()} == {
        "cp1251": 2,
        "koi8-r": 1,
    }
    assert reader.files.named == [
        f"{tmp_path}/d.html: 1 bad byte (not utf-8, or NUL) replaced by U+FFFD"
    ]


def test_lines_of_a_stream_in_another_encoding_are_read_and_bad_ones_named(tmp_path):
    lines = TEXTS["koi8-r"] * 3000
    path = write(tmp_path / "lines.txt", lines.encode("koi8-r"))
    reader = CorpusReader(path, number_ids=True)
    assert {document.text for document in reader} == {TEXTS["koi8-r"].strip()}
    assert list(reader.recoded) == ["koi8-r"]
    objects = b'{"text": "a"}\n' * 20_000 + b'{"text": "b \xff"}\n{"text": "c"}\n'
    path = write(tmp_path / "objects.jsonl", objects)
    reader = CorpusReader(path, on_error="skip", number_ids=True)
    assert sum(1 for _ in reader) == 20_001
    assert reader.problems[0].startswith(f"{path}:20001: invalid UTF-8: byte 0xff")


def test_a_plain_run_does_not_import_the_detector(tmp_path):
    write(tmp_path / "plain.md", GERMAN)
    program = (
        "import sys; from retriever import CorpusReader; "
        "[_] = CorpusReader(sys.argv[1]); assert 'chardet' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)


def test_encoding_detection_reads_bounded_part_of_file():
    started = time.monotonic()
    content = b"plain words\n" * 4_000_000 + TEXTS["koi8-r"].encode("koi8-r") * 50
    assert decode(content).encoding == "koi8-r"
    for content in (b"a" * 20_000_000 + b"\xe9\xf1" * 50, b"\xe9 " * 5_000_000):
        detect_encoding(content)
    assert time.monotonic() - started < 20
