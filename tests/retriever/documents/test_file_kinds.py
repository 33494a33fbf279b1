"""Files of every kind: text, title, metadata and outline; what is refused, and what it costs."""

from __future__ import annotations

import gzip
import mailbox
import os
import time
from io import BytesIO
from zipfile import ZipFile

import pytest

from retriever import ConfigError, CorpusReader, SourceError
from retriever.documents import TextForm
from retriever.documents.dates import file_time
from retriever.documents.decoding import page_text
from retriever.documents.kinds.html import read_html
from retriever.documents.kinds.mail import read_mail
from retriever.documents.kinds.pdf import _bookmark_marks
from retriever.documents.kinds.plain import read_markdown
from retriever.documents.kinds.zipped import read_pptx
from retriever.documents.outline import Mark
from tests.retriever.documents import file_samples as samples
from tests.retriever.documents.source_samples import read, write

for module in ("pypdfium2", "trafilatura", "lxml"):
    pytest.importorskip(module)

HONEY = "Bees make honey."
DAY = "2024-03-01"
CREATED = "2024-03-01T10:00:00"
LETTER = {
    "from": "Ada Löwe <ada@example.org>",
    "to": "bob@example.org",
    "date": f"{DAY}T09:00:00",
    "message_id": "<1@example.org>",
    "attachments": ["bee.bin"],
}
SENT = ("message", f"{DAY} Ada Löwe: Bees", "")
ARTICLE = "".join(f"<p>Bees make {name} honey, as we have said.</p>" for name in "abcdefgh")
# What a file holds, its title, metadata and text, and the marks with what begins there.
KINDS = {
    "bees.txt": (
        "\n\n  Bees make\nhoney.  \n",
        (None, {}, "Bees make\nhoney.", [("line", "3", "Bees")]),
    ),
    "bees.py": ("\nimport x\n", (None, {}, "import x", [("line", "2", "import")])),
    "bees.md": (
        samples.MARKDOWN,
        (
            "On bees",
            {"tags": ["a", "b"], "date": DAY, "year": 2024},
            f"{HONEY}\n\n## Food\n\n```\n# no heading\n```\n\nNectar\n------\n\nSweet.",
            [
                ("line", "10", "Bees"),
                ("heading", "Food", "## Food"),
                ("heading", "Nectar", "Nectar"),
            ],
        ),
    ),
    "toml.md": ("+++\ndraft = true\n+++\nx", (None, {"draft": True}, "x", [("line", "4", "x")])),
    "rule.md": ("---\n\nx\n", (None, {}, "---\n\nx", [("line", "1", "---")])),
    "bees.rst": (
        "Bees\n====\n",
        ("Bees", {}, "Bees\n====", [("line", "1", "Bees"), ("heading", "Bees", "Bees")]),
    ),
    "bees.ipynb": (
        samples.notebook(),
        (
            "On bees",
            {},
            "# On bees\nBees make honey.\n## Food\n\neat()",
            [("heading", "On bees", "# On"), ("heading", "Food", "## Food")],
        ),
    ),
    "bees.html": (
        samples.PAGE,
        (
            "On bees",
            {"author": "Ada", "language": "en"},
            f"{HONEY} See this.\n\nFood\nnectar\npollen\n\na\n  b\nx | 1",
            [("heading", "Food", "Food")],
        ),
    ),
    # The main text by trafilatura: the menu is left out.
    "news.htm": (
        f"<title>News</title><div><a href=a>Menu</a> <a href=b>More</a></div><div>{ARTICLE}</div>",
        ("News", {}, "\n\n".join(ARTICLE[3:-4].split("</p><p>")), []),
    ),
    "bees.pdf": (
        samples.book_pdf(),
        (
            "Bees",
            {"author": "Ada", "date": DAY, "created": CREATED, "pages": 2},
            "On bees\n\nFood\nnectar",
            [("page", "ii", "On"), ("page", "1", "Food"), ("heading", "Food", "Food")],
        ),
    ),
    "bees.docx": (
        samples.docx(),
        (
            "On bees",
            {"author": "Ada Lovelace", "date": DAY, "created": CREATED},
            f"{HONEY}\n\nFood\n\nNectar.\n\nx | 1",
            [("heading", "Food", "Food")],
        ),
    ),
    "bees.pptx": (
        samples.pptx(),
        (
            "Core title",
            {"author": "Ada Lovelace", "date": DAY, "created": CREATED},
            "On bees\n\nA talk\n\nFood\n\nnectar\npollen\n\nSay it slowly.",
            [
                ("page", "1", "On bees"),
                ("heading", "On bees", "On bees"),
                ("page", "2", "Food"),
                ("heading", "Food", "Food"),
            ],
        ),
    ),
    "bees.epub": (
        samples.epub(),
        (
            "On bees",
            {"author": "Ada", "language": "en"},
            "One\n\nBees.\n\nTwo\n\nHoney.",
            [("heading", "One", "One"), ("heading", "Two", "Two")],
        ),
    ),
    "bees.eml": (samples.mail(), ("Bees", LETTER, f"{HONEY}\n\nFrom here on.", [SENT])),
    "page.eml": (samples.mail(html=True), ("Bees", LETTER, HONEY, [SENT])),
    # Wrong suffixes.
    "pdf.txt": (samples.pdf([HONEY]), (None, {"pages": 1}, HONEY, [("page", "1", "Bees")])),
    "html.pdf": (samples.PAGE, ("On bees", None, None, None)),
    "epub.docx": (samples.epub(), ("On bees", None, None, None)),
    "open.docx": (samples.opendocument(), (None, {}, HONEY, [])),
    "sheet.odt": (samples.xlsx(), (None, {}, "Bees | 7", [])),
    "letter.xlsx": (rb"{\rtf1 Bees make honey.}", (None, {}, HONEY, [])),
    "words.rtf.gz": (gzip.compress(rb"{\rtf1 Bees make honey.}"), (None, {}, HONEY, [])),
    "zipped.pdf.gz": (gzip.compress(samples.book_pdf()), ("Bees", None, None, None)),
    "zipped.md.gz": (gzip.compress(b"# A\nx"), ("A", {}, "x", [("line", "2", "x")])),
}


def test_files_of_every_kind_are_read_in_order_with_their_outlines(tmp_path):
    for name, (content, _) in KINDS.items():
        write(tmp_path / name, content)
    reader = CorpusReader(tmp_path)
    found = {one.id: one for one in reader}
    assert (list(found), reader.bytes_read) == (sorted(KINDS), reader.total_bytes)
    for name, (_, (title, metadata, text, marks)) in KINDS.items():
        one = found[name]
        assert one.title == title, name
        if metadata is not None:
            modified = {"modified": file_time((tmp_path / name).stat().st_mtime_ns)}
            assert (one.metadata, one.text) == ({**metadata, **modified}, text), name
            outline = [mark for mark in one.outline if mark.kind != "label"]
            begun = [(mark.kind, mark.label, one.text[mark.offset :]) for mark in outline]
            assert len(begun) == len(marks), (name, begun)
            for (kind, label, rest), expected in zip(begun, marks, strict=True):
                assert (kind, label) == expected[:2], name
                assert rest.startswith(expected[2]), name
    assert [mark.level for mark in found["bees.html"].outline] == [0, 2]


def bomb(name, entry):
    """A document whose XML has entities that grow tenfold a line."""
    lines = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 9))
    head = f'<!DOCTYPE x [<!ENTITY e0 "bees">{lines}]>'
    return entry(head=head) if name != "docx" else entry("<w:p>&e8;</w:p>", head)


# A chart with a title, a category and a number.
CHART = (
    '<c:chart xmlns:c="urn:c" xmlns:a="urn:a"><a:t>Yield</a:t>'
    "<c:strCache><c:pt><c:v>May</c:v></c:pt></c:strCache>"
    "<c:numCache><c:pt><c:v>12</c:v></c:pt></c:numCache></c:chart>"
)
REFUSED = {
    "damaged.pdf": (samples.book_pdf()[:300], "a damaged PDF"),
    # Comments before no page, of which each could end at the end of any later one.
    "comments.docx": (b"<!---->" * 140 + b"x", "no DOCX file, whatever its name"),
    "words.pdf": (b"only words", "no PDF file, whatever its name"),
    "locked.pdf": (
        samples.pdf(
            ["x"],
            objects=f"<</Filter/Standard/V 1/R 2/P -4/O<{'00' * 32}>/U<{'11' * 32}>>>",
            trailer="/Encrypt 6 0 R/ID[<00><00>]",
        ),
        "encrypted; save a copy without its password",
    ),
    "damaged.docx": (samples.docx()[:-30], "a damaged DOCX file"),
    "old.docx": (b"\xd0\xcf\x11\xe0" + bytes(600), "encrypted, or of an Office before 2007"),
    "empty.pptx": (samples.archive({"a": "b"}), "a damaged PPTX file: no part"),
    "words.rtf": (b"only words", "no RTF file, whatever its name; rename it"),
    "old.xlsx": (b"\xd0\xcf\x11\xe0" + bytes(600), "encrypted, or of an Office before 2007"),
    "empty.xlsx": (samples.archive({"a": "b"}), "a damaged XLSX file: no part 'xl/workbook.xml'"),
    "empty.odt": (samples.archive({"a": "b"}), "a damaged OpenDocument file: no part"),
    "entities.docx": (bomb("docx", samples.docx), "declares XML entities"),
    "entities.pptx": (bomb("pptx", samples.pptx), "declares XML entities"),
    "entities.epub": (bomb("epub", samples.epub), "declares XML entities"),
    "bomb.epub": (
        lambda: samples.archive({"META-INF/container.xml": bytes((1 << 28) + 1)}),
        "unpacks to more than 256 MiB",
    ),
    "deep.html": (b"<div>" * 3000 + HONEY.encode(), "elements within each other are more than"),
    "list.ipynb": (b"[1]", "no Jupyter notebook: expected a list of cells"),
    "words.ipynb": (b"words", "no Jupyter notebook: not JSON"),
    "words.eml": (b"\nonly words", "no e-mail: it begins with no header"),
    "words.mbox": (b"only words", "no mailbox: expected a first line"),
    "bytes.md": (b"a\nb \xff" + bytes(range(1, 256)) * 9, "invalid UTF-8: byte 0xff"),
    "nul.py": (b"a\n\0b\0" * 9, "holds a NUL byte"),
    "cut.pdf.gz": (gzip.compress(samples.book_pdf())[:-9], "the gzip data ends too early"),
}


def test_unreadable_file_is_one_line_and_other_files_are_read(tmp_path):
    for name, (content, _) in REFUSED.items():
        write(tmp_path / name, content() if callable(content) else content)
    write(tmp_path / "zz.txt", HONEY)
    reader = CorpusReader(tmp_path, on_error="skip")
    started = time.monotonic()
    problems = []
    reader._skip = problems.append
    assert [document.id for document in reader] == ["zz.txt"]
    assert time.monotonic() - started < 30
    assert len(problems) == len(REFUSED)
    for name, problem in zip(sorted(REFUSED), problems, strict=True):
        place, _, fault = problem.partition(": ")
        assert place.startswith(f"{tmp_path}/{name}")
        assert fault.startswith(REFUSED[name][1]), problem
        assert "\n" not in problem
        with pytest.raises(SourceError, match=name):
            read(tmp_path / name)


def test_pptx_with_missing_slide_or_note_keeps_others():
    parts = parts_of(samples.pptx())
    del parts["ppt/slides/slide2.xml"]
    del parts["ppt/notesSlides/notes1.xml"]
    parsed = read_pptx(samples.archive(parts))
    assert (parsed.title, parsed.text) == ("Food", "nectar\npollen")
    assert [tuple(loss) for loss in parsed.losses] == [("parts", "missing slides: 1 of 2")]


def test_pptx_with_sections_counts_each_slide_once():
    section = '<p14:sldId xmlns:p14="urn:sections" id="256"/>'
    parts = parts_of(samples.pptx())
    old = parts["ppt/presentation.xml"].decode()
    parts["ppt/presentation.xml"] = old.replace(
        "</p:sldIdLst>", f"</p:sldIdLst><p:extLst>{section}{section}</p:extLst>"
    )
    assert read_pptx(samples.archive(parts)) == read_pptx(samples.pptx())


def test_pptx_words_of_chart_and_diagram_stand_before_the_note_of_the_slide():
    parts = parts_of(samples.pptx()) | {
        "ppt/slides/_rels/slide1.xml.rels": slide_relations(
            chart="../charts/chart1.xml",
            diagramData="../diagrams/data1.xml",
            notesSlide="../notesSlides/notes1.xml",
        ),
        "ppt/charts/chart1.xml": CHART,
        "ppt/diagrams/data1.xml": "<d><t>Larva</t><t>Pupa</t></d>",
    }
    parsed = read_pptx(samples.archive(parts))
    assert parsed.text.endswith("pollen\n\nYield\nMay\n\nLarva\nPupa\n\nSay it slowly.")
    assert parsed.losses == ()


def test_pptx_with_damaged_chart_or_missing_diagram_notes_it_and_keeps_the_slide():
    parts = parts_of(samples.pptx()) | {
        "ppt/slides/_rels/slide1.xml.rels": slide_relations(
            chart="../charts/chart1.xml", diagramData="../diagrams/data1.xml"
        ),
        "ppt/charts/chart1.xml": "<c",
    }
    parsed = read_pptx(samples.archive(parts))
    assert parsed.text.endswith("Food\n\nnectar\npollen")
    assert [tuple(loss) for loss in parsed.losses] == [
        ("parts", "missing or damaged charts and diagrams: 2")
    ]


def parts_of(content):
    with ZipFile(BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def slide_relations(**targets):
    rows = "".join(
        f'<Relationship Id="{kind}" Type="urn:types/{kind}" Target="{target}"/>'
        for kind, target in targets.items()
    )
    return f"<Relationships>{rows}</Relationships>"


def test_files_without_text_are_skipped_or_counted_as_empty(tmp_path):
    write(tmp_path / "blank.pdf", b"")
    write(tmp_path / "blank.html", "<html><body></body></html>")
    write(tmp_path / "scan.pdf", samples.pdf(["", ""]))
    with pytest.raises(SourceError, match=r"scan\.pdf: no text layer: all its pages are images"):
        read(tmp_path / "scan.pdf")
    reader = CorpusReader([tmp_path / "scan.pdf", tmp_path])
    assert list(reader) == []
    assert (reader.skipped, reader.empty) == (2, 2)


def test_a_kind_whose_library_is_missing_is_named_with_the_command_that_installs_it(
    tmp_path, monkeypatch
):
    for name in ("bees.pdf", "bees.md"):
        write(tmp_path / name, KINDS[name][0])
    monkeypatch.setattr("retriever.errors.find_spec", lambda name: None)
    reader = CorpusReader(tmp_path)
    assert [document.id for document in reader] == ["bees.md"]
    assert reader.problems == [
        f"{tmp_path}/bees.pdf: reading PDF files needs pypdfium2, which is not installed: "
        'pip install "layer-retriever[documents]"'
    ]
    with pytest.raises(SourceError, match="needs pypdfium2"):
        read(tmp_path / "bees.pdf")


@pytest.mark.parametrize(
    ("name", "content", "remedy"),
    [
        ("a.doc", b"\xd0\xcf\x11\xe0", "soffice --headless --convert-to docx FILE"),
        ("a.xls", b"\xd0\xcf\x11\xe0", "soffice --headless --convert-to xlsx FILE"),
        ("a.ppt", b"\xd0\xcf\x11\xe0", "save it as .pptx"),
        ("a.msg", b"\xd0\xcf\x11\xe0", "msgconvert FILE"),
        ("a.pages", samples.archive({"Index/Document.iwa": "x"}), "export it as .docx from Pages"),
        ("a.key", samples.archive({"Index/Document.iwa": "x"}), "export it as .pptx"),
        ("a.numbers", samples.archive({"Index/Document.iwa": "x"}), "export it as .xlsx"),
        ("a.zip", samples.archive({"a": "b"}), "convert or unpack it"),
    ],
)
def test_a_file_of_a_kind_that_is_not_read_is_named_with_what_converts_it(
    tmp_path, name, content, remedy
):
    write(tmp_path / name, content)
    with pytest.raises(SourceError, match=f"{name}: of a kind that is not read; .*{remedy}"):
        read(tmp_path / name)
    write(tmp_path / "bees.txt", HONEY)
    reader = CorpusReader(tmp_path)
    assert [document.text for document in reader] == [HONEY]
    assert reader.files_left_out == {f".{name.partition('.')[2]}": 1}


def test_a_file_alone_is_one_document_whose_id_is_its_path_as_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.md", "b/a.md", "c.py", "d.pdf"):
        write(tmp_path / name, KINDS["bees." + name.rpartition(".")[2]][0])
    write(tmp_path / "e.txt", "one\ntwo\n")
    sources = ["d.pdf", "./a.md", "b/a.md", "e.txt", "c.py"]
    reader = CorpusReader(sources)
    assert [document.id if document.outline else document.text for document in reader] == [
        *["d.pdf", "a.md", "b/a.md", "one", "two", "c.py"]
    ]
    assert "ids of files that are one document are their paths as given" in reader.generated_ids
    # A pipe is not opened to see what it is.
    os.mkfifo("pipe.txt")
    CorpusReader(["pipe.txt"])


def test_the_messages_of_a_mailbox_are_documents(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    box = mailbox.mbox("mail.mbox")
    for message in (samples.mail("One"), b"no header, so left out", samples.mail("Two")):
        box.add(message)
    box.close()
    with pytest.raises(SourceError, match=r"^mail.mbox#2: no e-mail"):
        read("mail.mbox", on_error="fail")
    found = read("mail.mbox", on_error="skip-files")
    assert {document.id: document.title for document in found} == {
        "mail.mbox#1": "One",
        "mail.mbox#3": "Two",
    }
    # The mailbox writes this line with `>` before it.
    assert all(document.text == f"{HONEY}\n\nFrom here on." for document in found)
    assert [document.outline[1:] for document in found] == [
        (Mark(0, "message", f"{DAY} Ada Löwe: {subject}"),) for subject in ("One", "Two")
    ]


def test_slow_or_crashing_file_is_skipped_and_others_are_read(tmp_path, monkeypatch):
    write(tmp_path / "a.pdf", samples.pdf(["slow"] * 3000))
    write(tmp_path / "b.pdf", samples.book_pdf())
    write(tmp_path / "c.txt", b"read in any case")
    monkeypatch.setattr("retriever.documents.processes.SECONDS", 0.03)
    reader = CorpusReader(tmp_path, on_error="skip")
    late = [document.id for document in reader]
    assert "a.pdf" not in late
    assert reader.problems[0] == f"{tmp_path}/a.pdf: not read within 0 s; split or convert it"
    monkeypatch.setattr("retriever.documents.processes.SECONDS", 60)
    found = {document.id: document for document in CorpusReader(tmp_path)}
    assert found.keys() == {"a.pdf", "b.pdf", "c.txt"}
    assert (found["a.pdf"].metadata["pages"], len(found["a.pdf"].outline)) == (3000, 3001)
    monkeypatch.setattr("retriever.documents.processes._START", "import os; os.abort()")
    with pytest.raises(SourceError, match=r"b\.pdf: the process that read it ended \(signal 6\)"):
        read(tmp_path / "b.pdf")


def test_abandoned_reader_ends_its_processes(tmp_path):
    for number in range(30):
        write(tmp_path / f"{number}.pdf", samples.pdf(["x"] * 200))
    documents = iter(CorpusReader(tmp_path))
    next(documents)
    started = time.monotonic()
    documents.close()
    assert time.monotonic() - started < 5


def test_texts_in_other_encodings_are_read_and_noted(tmp_path):
    text = "id,text\n1,naïve Müller\n"
    for name, encoding in (("a.md", "cp1252"), ("b.txt", "utf-16"), ("c.py", "utf-8-sig")):
        write(tmp_path / name, text.encode(encoding))
    write(tmp_path / "d.html", "<meta charset=cp1251><main>Привет</main>".encode("cp1251"))
    reader = CorpusReader(tmp_path)
    assert [document.text for document in reader] == [text.strip()] * 3 + ["Привет"]
    assert {name: document.first for name, document in reader.recoded.items()} == {
        "cp1252": f"{tmp_path}/a.md",
        "utf-16": f"{tmp_path}/b.txt",
    }
    for encoding in ("cp1252", "utf-16"):
        table = write(tmp_path / "t.csv.gz", gzip.compress((text * 9000).encode(encoding)))
        reader = CorpusReader(table, on_error="skip", number_ids=True)
        assert next(iter(reader)).text == "naïve Müller"
        assert list(reader.recoded) == [encoding]
    words = write(tmp_path / "t.csv", "text\nПривет\n".encode("cp1251"))
    assert [document.text for document in read(words)] == ["Привет"]
    assert [document.text for document in read(words, form=TextForm("cp1251"))] == ["Привет"]
    for path in (words, tmp_path / "a.md"):
        with pytest.raises(SourceError, match=r"not ascii: .* give `--set encoding"):
            read(path, form=TextForm("ascii"))
    for options in ({"encoding": "no-such"}, {"encoding": "rot13"}, {"delimiter": "||"}):
        with pytest.raises(ConfigError):
            TextForm(**options)


def test_other_delimiters_and_tables_without_a_header(tmp_path):
    table = write(tmp_path / "t.txt", 'id;text\n1;"a;b"\n2;c\n')
    found = read(table, form=TextForm(delimiter=";"))
    assert [(one.id, one.text) for one in found] == [("1", "a;b"), ("2", "c")]
    bare = write(tmp_path / "t.csv", "7,a\n8,b\n")
    with pytest.raises(SourceError, match="the columns are '1', '2'"):
        read(bare, form=TextForm(header=False))
    from retriever import Fields

    found = read(bare, Fields(text="2"), form=TextForm(header=False))
    assert [(one.text, one.metadata) for one in found] == [("a", {"1": 7}), ("b", {"1": 8})]
    one = write(tmp_path / "one.tsv", "a\nb\n")
    assert [one.text for one in read(one, form=TextForm(header=False))] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.md", "---\n" + "[" * 4_000 + "\n---\ntext"),
        ("a.md", "---\nnot: closed\n" + "x: y\n" * 40_000),
        ("a.md", "#" * 1_000_000 + "\n" + "a\n-" * 40_000),
        ("a.md", "# a" + " " * 100_000 + "x\ntext"),
        ("a.md", "# a" + " #" * 50_000 + "\ntext"),
        ("a.md", "\n " * 50_000 + "x"),
        ("a.html", "<p>" * 20_000 + "x" + "<b>y" * 2000),
    ],
)
def test_a_hostile_text_is_read_in_little_time(tmp_path, name, content):
    write(tmp_path / name, content)
    started = time.monotonic()
    [document] = read(tmp_path)
    assert document.text.strip()
    assert list(document.metadata) == ["modified"]
    assert time.monotonic() - started < 30
    bomb = "---\na: &a [x, x]\nb: &b [*a, *a]\n---\ntext"
    assert read_markdown(bomb).metadata == {"a": ["x", "x"], "b": "&b [*a, *a]"}


@pytest.mark.parametrize(
    ("name", "codec", "text"),
    [
        ("iso-8859-1", "cp1252", "It’s 5 €"),
        ("us-ascii", "utf-8", "Grüße"),
        ("gb2312", "gbk", "朱镕基"),
        ("x-sjis", "cp932", "①髙㈱"),
        ("euc-kr", "cp949", "똠방각하"),
        *((name, "utf-8", "Grüße") for name in ("utf8mb4", "hex", "undefined", "utf-16", "ascii")),
        ("utf-8", "cp1252", "Grüße an alle"),
    ],
)
def test_pages_and_mails_are_read_in_the_encoding_that_browsers_take_by_its_name(name, codec, text):
    page = f'<meta charset="{name}"><p>{text}'
    assert page_text(page.encode(codec)) == page
    letter = f"From: a\nContent-Type: text/plain; charset={name}\n\n{text}"
    assert read_mail(letter.encode(codec)).text == text


def test_a_mail_has_the_text_of_all_parts_that_are_no_attachments():
    def part(kind, text, more=""):
        return f"Content-Type: {kind}\n{more}\n{text}\n"

    def parts(kind, *inner):
        lines = "".join(f"--{kind}\n{one}" for one in inner)
        return part(f"multipart/{kind}; boundary={kind}", f"{lines}--{kind}--")

    hidden = part("text/plain", "hidden", "Content-Disposition: attachment\n")
    page, image = part("text/html", "<p>zebra"), part("image/png", "x")
    first = parts("alternative", parts("related", page, image), part("text/plain", " "))
    letter = parts("mixed", first, image, part("text/plain", "giraffe"), hidden)
    assert read_mail(b"From: a\n" + letter.encode()).text == "zebra\n\ngiraffe"


def test_dates_of_files_are_in_the_order_of_time():
    moment = "2024-03-02 10:00:00 +0200"
    assert read_markdown(f"---\ndate: {moment}\n---\nx").metadata == {"date": "2024-03-02T08:00:00"}
    pages = {"2024-03-02T10:00+02:00": {"date": "2024-03-02T08:00:00"}, "March 5, 2019": {}}
    for date, expected in pages.items():
        page = f'<meta name="date" content="{date}"><p>{HONEY}'
        assert read_html(page.encode()).metadata == expected
    mail = b"Date: Fri, 01 Mar 2024 23:30:00 -0800\n\nx"
    assert read_mail(mail).metadata == {"date": "2024-03-02T07:30:00"}


def test_a_page_keeps_its_headings_and_items():
    page = f"<title>Wiki</title><h1>Printer</h1><p>{HONEY * 20}<h2>Toner</h2><p>{HONEY * 20}"
    document = read_html(f"{page}<ul><li>TN-2410<li>TK-1150</ul>".encode())
    assert document.text.endswith(f"\n\nToner\n\n{HONEY * 20}\nTN-2410\nTK-1150")
    assert [document.title, *(mark.label for mark in document.outline)] == ["Printer", "Toner"]


def test_bookmarks_stand_before_their_sections_in_their_order():
    page = "of What is\n10.3 What is\nDebian?\nDebian\nWhat is Debian?\nNext"
    marks = _bookmark_marks(page, [("What is Debian?", 1), ("Nowhere", 2), ("Next", 1)])
    assert [page[mark.offset :].split(maxsplit=1)[0] for mark in marks] == ["10.3", "10.3", "Next"]
