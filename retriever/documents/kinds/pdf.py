"""PDF by pypdfium2: the text, form fields and notes of each page, and bookmarks as headings."""

from __future__ import annotations

import ctypes
import re
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from retriever.documents.dates import pdf_date
from retriever.documents.hyphens import join_parted_words
from retriever.documents.kinds import (
    OutlinedText,
    Parsed,
    PassedOverError,
    nonempty_metadata,
    one_line,
)
from retriever.documents.kinds.pdf_layout import remove_running_lines
from retriever.documents.losses import Loss
from retriever.documents.outline import Mark
from retriever.errors import SourceError

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfPage, PdfTextPage

# Seconds for the bookmarks of a file. Each may be searched for in a list of all names.
_BOOKMARK_SECONDS = 20.0
# Characters of a bookmark that are searched for on its page. All searches may together pass the
# page so many times, but at least the third number of characters.
_LONGEST_SEARCHED = 100
_SEARCH_PASSES = 32
_LEAST_SEARCHED = 1 << 20
# Every 16th character of a page is tested for a missing Unicode mapping. If at least this share of
# them lacks it, all characters are tested.
_PROBE = 16
_LEAST_UNNAMED = 0.1
# Shares of guessed characters: of control characters, from which on they are numbers of glyphs; of
# spaces, from which on they are words; and of Han, Hangul and Kana.
_MOST_CONTROLS = 0.02
_LEAST_SPACES = 0.04
_LEAST_CJK = 0.8
_CJK = re.compile("[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")
# The least number of paths on a page that draw a picture, and not only rules.
_LEAST_PATHS = 10
# Maximum number of notes and fields of a page, and of options of a field.
_MOST_ANNOTATIONS = 10_000
_MOST_OPTIONS = 1_000
# Flag of a field whose value is a password.
_PASSWORD = 1 << 13
# Old fonts of TeX draw an accent and then its letter. An acute or a grave may be an apostrophe, and
# stays.
_ACCENTED = re.compile("(?:(?<=[A-Za-z])([¨ˇ¸˚]) |([¨ˇ¸˚]))([A-Za-z])")
_COMBINING = {"¨": "\u0308", "ˇ": "\u030c", "¸": "\u0327", "˚": "\u030a"}
_DOT_LEADERS = re.compile(r"(?:[ .]\.){4,}")
# Titles that programs derive from file names.
_FILE_NAME_TITLE = re.compile(
    r"(?i)untitled.*|.*\.(docx?|dvi|indd|odt|pdf|pptx?|qxd|rtf|tex|txt|xlsx?)"
)


class _PdfPage(NamedTuple):
    """A page: its text in pdfium, its notes, and what its text lacks."""

    text: str
    # Values of fields, and notes.
    notes: Sequence[str] = ()
    is_picture: bool = False
    has_glyph_numbers: bool = False
    is_damaged: bool = False
    # Whether a program recognized the text, or why it did not.
    is_recognized: bool = False
    fault: str = ""

    @property
    def lacks_text(self) -> bool:
        """Whether the page shows text that the file does not have."""
        return self.has_glyph_numbers or (self.is_picture and not (self.text or self.notes))


def read_pdf(content: bytes) -> Parsed:
    """Return the text of pages, fields and notes; raise PassedOverError if there is none."""
    from pypdfium2 import raw

    document = _open_document(content)
    bookmarks = _read_bookmarks(document)
    pages = _recognize_pages(
        document, [_read_page(document, index) for index in range(len(document))]
    )
    texts = join_parted_words(remove_running_lines([page.text for page in pages]))
    outline = OutlinedText()
    for index, (page, joined) in enumerate(zip(pages, texts, strict=True)):
        outline.mark("page", document.get_page_label(index) or str(index + 1))
        text = _clean_text(joined)
        marks = _bookmark_marks(text, bookmarks.get(index, ()))
        for mark in marks if not text else ():
            outline.mark(mark.kind, mark.label, mark.level)
        outline.add(text, marks=marks)
        outline.add("\n".join(page.notes))
    properties = document.get_metadata_dict()
    created = pdf_date(properties.get("CreationDate", "")) or ""
    title = one_line(properties.get("Title")).removeprefix("Microsoft Word - ")
    metadata = nonempty_metadata(
        author=properties.get("Author"),
        date=created[:10],
        created=created,
        keywords=properties.get("Keywords"),
    )
    parsed = outline.parsed(
        "" if _FILE_NAME_TITLE.fullmatch(title) else title, {**metadata, "pages": len(pages)}
    )
    recognized = sum(page.is_recognized for page in pages)
    if recognized:
        parsed = parsed._replace(metadata={**parsed.metadata, "ocr_pages": recognized})
    if not parsed.text:
        raise _no_text_error(pages)
    is_dynamic = document.get_formtype() == raw.FORMTYPE_XFA_FULL
    return parsed._replace(losses=tuple(_losses(pages, is_dynamic)))


def _recognize_pages(document: PdfDocument, pages: list[_PdfPage]) -> list[_PdfPage]:
    """Return the pages with the text that a program of the user recognized, if there is one."""
    from retriever.documents import ocr

    command = ocr.ocr_command()
    scanned = [number for number, page in enumerate(pages) if page.lacks_text]
    for number in scanned[: ocr.MOST_PAGES] if command else ():
        try:
            text = ocr.recognize_page(document[number], command)
        except (ocr.RecognitionError, OSError) as error:
            pages[number] = pages[number]._replace(fault=one_line(error))
            continue
        if text:
            pages[number] = _PdfPage(text, pages[number].notes, is_recognized=True)
    return pages


def _open_document(content: bytes) -> PdfDocument:
    """Open a PDF with its form; raise SourceError if it is encrypted or damaged."""
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error):
            raise SourceError(
                "encrypted; save a copy without its password, as `qpdf --decrypt` does"
            ) from error
        raise SourceError(f"a damaged PDF: {one_line(error)}") from error
    # Without this, the fields of pages have no values.
    with suppress(pypdfium2.PdfiumError):
        document.init_forms()
    return document


def _no_text_error(pages: Sequence[_PdfPage]) -> PassedOverError:
    """Return the error for a document whose pages have no text."""
    if any(page.has_glyph_numbers for page in pages):
        return PassedOverError(
            f"no text that can be read: the fonts of its {len(pages)} pages do not say which "
            f"characters they show{_advice(pages)}"
        )
    return PassedOverError(f"no text layer: all its pages are images (a scan){_advice(pages)}")


def _advice(pages: Sequence[_PdfPage]) -> str:
    """Return why no text was recognized, or how to recognize it."""
    from retriever.documents.ocr import ocr_command

    faults = [page.fault for page in pages if page.fault]
    if faults:
        return f"; not recognized: {faults[0]}"
    return "" if ocr_command() else "; --ocr COMMAND recognizes it, such as --ocr 'tesseract - -'"


def _losses(pages: list[_PdfPage], is_dynamic_form: bool) -> Iterator[Loss]:
    number = sum(page.is_picture and not (page.text or page.notes) for page in pages)
    if number:
        yield Loss("pages", f"{number:,} of {len(pages):,} pages have no text{_advice(pages)}")
    number = sum(page.is_damaged for page in pages)
    if number:
        yield Loss("pages", f"{number:,} of {len(pages):,} pages are damaged")
    numbers = [str(number) for number, page in enumerate(pages, 1) if page.has_glyph_numbers]
    if numbers:
        more = f" and {len(numbers) - 10:,} more" if len(numbers) > 10 else ""
        yield Loss(
            "characters",
            f"text of {len(numbers):,} of {len(pages):,} pages is left out, as its fonts do not "
            f"say which characters they show: {', '.join(numbers[:10])}{more}",
        )
    if is_dynamic_form:
        yield Loss("parts", "its form is in XFA, which is not read")


def _bookmark_marks(text: str, bookmarks: Iterable[tuple[str, int]]) -> list[Mark]:
    """Return the marks of a page's bookmarks in order; one not found is at the previous one."""
    marks: list[Mark] = []
    offset = 0
    characters_left = max(_LEAST_SEARCHED, _SEARCH_PASSES * len(text))
    for label, level in bookmarks:
        words = r"\s+".join(map(re.escape, label[:_LONGEST_SEARCHED].split()))
        for pattern in (rf"(?m)^(?:(?:[A-Z]|\d+)(?:\.\d+)*\.?\s+)?{words}", words):
            match = re.compile(pattern).search(text, offset) if characters_left > 0 else None
            characters_left -= (len(text) if match is None else match.end()) - offset
            if match is not None:
                offset = match.start()
                break
        marks.append(Mark(offset, "heading", label, level))
    return marks


def _read_page(document: PdfDocument, index: int) -> _PdfPage:
    import pypdfium2

    try:
        page = document[index]
        layer = page.get_textpage()
        text, has_glyph_numbers = _layer_text(layer)
        is_empty = not text.strip()
        notes, drawn = _read_notes(document, page, layer)
        is_picture = is_empty and not has_glyph_numbers and _is_picture(page)
        if drawn:
            notes += _read_drawn_notes(document, index, page, drawn)
        layer.close()
        page.close()
    except pypdfium2.PdfiumError:
        return _PdfPage("", is_damaged=True)
    return _PdfPage("" if is_empty else text, notes, is_picture, has_glyph_numbers)


def _layer_text(layer: PdfTextPage) -> tuple[str, bool]:
    """Return the text of a page without numbers of glyphs, and whether there are any."""
    from pypdfium2 import raw

    def is_unnamed(index: int) -> bool:
        return bool(raw.FPDFText_HasUnicodeMapError(layer, index) == 1)

    size = layer.count_chars()
    probes = range(0, size, _PROBE if size > 10 * _PROBE else 1)
    if sum(map(is_unnamed, probes)) <= _LEAST_UNNAMED * len(probes):
        return layer.get_text_range(), False
    runs = [(flag, list(indices)) for flag, indices in groupby(range(size), is_unnamed)]
    guessed = "".join(
        chr(raw.FPDFText_GetUnicode(layer, index))
        for flag, indices in runs
        for index in indices
        if flag
    )
    if _reads_as_text(guessed):
        return layer.get_text_range(), False
    parts = [layer.get_text_range(indices[0], len(indices)) for flag, indices in runs if not flag]
    return "".join(parts), True


def _reads_as_text(guessed: str) -> bool:
    """Return whether pdfium's guesses of characters without a Unicode mapping are right."""
    controls = sum(
        unicodedata.category(character) in ("Cc", "Cn", "Co") and character not in "\r\n\t"
        for character in guessed
    )
    if controls > _MOST_CONTROLS * len(guessed):
        return False
    is_cjk = len(_CJK.findall(guessed)) >= _LEAST_CJK * len(guessed)
    return is_cjk or guessed.count(" ") >= _LEAST_SPACES * len(guessed)


def _is_picture(page: PdfPage) -> bool:
    """Return whether a page without text shows more than a few rules."""
    from pypdfium2 import raw

    paths = 0
    for part in page.get_objects(max_depth=5):
        paths += part.type == raw.FPDF_PAGEOBJ_PATH
        if part.type in (raw.FPDF_PAGEOBJ_IMAGE, raw.FPDF_PAGEOBJ_SHADING):
            return True
        if paths >= _LEAST_PATHS:
            return True
    return False


def _read_notes(
    document: PdfDocument, page: PdfPage, layer: PdfTextPage
) -> tuple[list[str], list[tuple[float, ...]]]:
    """Return the values of fields and notes of a page that are not in its text, each once.

    Also return the areas of stamps that are drawn, but have no text of their own.
    """
    from pypdfium2 import raw

    # Keyed by field, since two fields may have the same value.
    notes: dict[tuple[str, str], None] = {}
    drawn: list[tuple[float, ...]] = []
    hidden = raw.FPDF_ANNOT_FLAG_HIDDEN | raw.FPDF_ANNOT_FLAG_NOVIEW
    for number in range(min(raw.FPDFPage_GetAnnotCount(page), _MOST_ANNOTATIONS)):
        annotation = raw.FPDFPage_GetAnnot(page, number)
        if not annotation:
            continue
        subtype = raw.FPDFAnnot_GetSubtype(annotation)
        is_field = subtype == raw.FPDF_ANNOT_WIDGET
        is_note = subtype in _note_subtypes()
        if (is_field or is_note) and not raw.FPDFAnnot_GetFlags(annotation) & hidden:
            name = ""
            if is_field:
                name, text = _read_field(document, annotation)
            else:
                text = _read_string(raw.FPDFAnnot_GetStringValue, annotation, b"Contents").strip()
            area = raw.FS_RECTF()
            raw.FPDFAnnot_GetRect(annotation, area)
            place = (area.left, area.bottom, area.right, area.top)
            if text and not _is_in_text(layer, place, text):
                notes[name, text] = None
            elif not text and subtype in (raw.FPDF_ANNOT_STAMP, raw.FPDF_ANNOT_FREETEXT):
                drawn.append(place)
        raw.FPDFPage_CloseAnnot(annotation)
    return [text for _, text in notes], drawn


def _read_drawn_notes(
    document: PdfDocument, index: int, page: PdfPage, areas: list[tuple[float, ...]]
) -> list[str]:
    """Return the texts that stamps draw in some areas of a page, once they are page content."""
    from pypdfium2 import raw

    raw.FPDFPage_Flatten(page, raw.FLAT_NORMALDISPLAY)
    flat_page = document[index]
    layer = flat_page.get_textpage()
    texts = [layer.get_text_bounded(*area) for area in areas]
    layer.close()
    flat_page.close()
    return list(dict.fromkeys(text for text in map(_clean_text, texts) if text))


@cache
def _note_subtypes() -> frozenset[int]:
    from pypdfium2 import raw

    names = (
        "TEXT FREETEXT LINE SQUARE CIRCLE POLYGON POLYLINE HIGHLIGHT UNDERLINE SQUIGGLY STRIKEOUT "
        "STAMP CARET INK"
    )
    return frozenset(getattr(raw, f"FPDF_ANNOT_{name}") for name in names.split())


def _is_in_text(layer: PdfTextPage, area: tuple[float, ...], text: str) -> bool:
    """Return whether the text of a page has that of a field or a note in its area."""
    return "".join(text.split()) in "".join(layer.get_text_bounded(*area).split())


def _read_field(document: PdfDocument, annotation: Any) -> tuple[str, str]:
    """Return the name of a field, and the text that was typed, chosen or checked in it."""
    from pypdfium2 import raw

    form = document.formenv
    kind = raw.FPDFAnnot_GetFormFieldType(form, annotation) if form is not None else -1
    if form is None or kind == -1:
        # A field that no form lists.
        return "", _read_string(raw.FPDFAnnot_GetStringValue, annotation, b"V").strip()
    name = _read_string(raw.FPDFAnnot_GetFormFieldName, form, annotation)
    # The label that a viewer shows for the field.
    label = one_line(_read_string(raw.FPDFAnnot_GetFormFieldAlternateName, form, annotation))
    value = ""
    if kind in (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON):
        if raw.FPDFAnnot_IsChecked(form, annotation):
            value = label or one_line(name).rpartition(".")[2]
            choice = _read_string(raw.FPDFAnnot_GetFormFieldExportValue, form, annotation).strip()
            if kind == raw.FPDF_FORMFIELD_RADIOBUTTON and choice:
                value = f"{value}: {choice}"
        return name, value
    if kind in (raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX):
        options = min(raw.FPDFAnnot_GetOptionCount(form, annotation), _MOST_OPTIONS)
        value = ", ".join(
            _read_string(raw.FPDFAnnot_GetOptionLabel, form, annotation, option)
            for option in range(options)
            if raw.FPDFAnnot_IsOptionSelected(form, annotation, option)
        )
    is_text = kind == raw.FPDF_FORMFIELD_TEXTFIELD
    is_password = is_text and raw.FPDFAnnot_GetFormFieldFlags(form, annotation) & _PASSWORD
    if kind in (raw.FPDF_FORMFIELD_PUSHBUTTON, raw.FPDF_FORMFIELD_SIGNATURE) or is_password:
        return name, ""
    value = value or _read_string(raw.FPDFAnnot_GetFormFieldValue, form, annotation)
    value = "\n".join(value.split("\r\n")).replace("\r", "\n").replace("\0", "").strip()
    return name, f"{label}: {value}" if label and value else value


def _read_string(read: Callable[..., int], *arguments: Any) -> str:
    """Return the text that a function of pdfium writes to a buffer of UTF-16."""
    size = read(*arguments, None, 0)
    buffer = ctypes.create_string_buffer(max(size, 2))
    read(*arguments, ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ushort)), size)
    return buffer.raw[: max(size - 2, 0)].decode("utf-16-le", "replace")


def _clean_text(text: str) -> str:
    """Return the text of a page with plain line ends and without the dots of tables of contents."""
    text = text.replace("\r\n", "\n").replace("\r", "").replace("\0", "")
    text = _ACCENTED.sub(_compose_accent, _DOT_LEADERS.sub(" ...", text))
    return "\n".join(line.rstrip() for line in text.split("\n")).strip()


def _compose_accent(match: re.Match[str]) -> str:
    """Return a letter with the accent before it, if there is such a letter."""
    accent = match[1] or match[2]
    letter = unicodedata.normalize("NFC", match[3] + _COMBINING[accent])
    return letter if len(letter) == 1 else match[0]


def _read_bookmarks(document: PdfDocument) -> dict[int, list[tuple[str, int]]]:
    """Return titles and levels of bookmarks by page, as many as are read in time."""
    import pypdfium2

    deadline = time.monotonic() + _BOOKMARK_SECONDS
    bookmarks: dict[int, list[tuple[str, int]]] = {}
    try:
        for bookmark in document.get_toc():
            if time.monotonic() > deadline:
                break
            label = one_line(bookmark.get_title())
            target = bookmark.get_dest()
            page = target.get_index() if target is not None else None
            if label and page is not None:
                bookmarks.setdefault(page, []).append((label, min(6, bookmark.level + 1)))
    except pypdfium2.PdfiumError:
        pass
    return bookmarks
