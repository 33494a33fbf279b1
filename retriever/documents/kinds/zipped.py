"""Zipped formats: parts of bounded size, and XML without entities of its own; PPTX and EPUB."""

from __future__ import annotations

import posixpath
import zipfile
import zlib
from io import BytesIO
from typing import Any, NamedTuple
from urllib.parse import unquote

from retriever.documents.dates import iso_date
from retriever.documents.decoding import page_text
from retriever.documents.document import Json
from retriever.documents.kinds import OutlinedText, Parsed, nonempty_metadata, one_line
from retriever.documents.kinds.html import BlockWriter, tree_of
from retriever.documents.losses import Loss
from retriever.errors import SourceError

# Maximum number of unpacked bytes of all parts that are read, and bytes unpacked at once.
LONGEST_PARTS = 1 << 28
_CHUNK = 1 << 16
# Maximum number of parts of a file; a longer list takes much memory.
_MOST_PARTS = 100_000
# Supported compression; other methods can unpack to any length at once.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# Slides in order. Sections list them again, in elements of the same name elsewhere.
_SLIDE_LIST = "/*/*[local-name()='sldIdLst']/*[local-name()='sldId']"
# Kinds of parts of a slide with words of their own.
_DRAWINGS = ("chart", "diagramData")
_IS_TITLE = "../*[local-name()='nvSpPr']//*[local-name()='ph'][@type='title' or @type='ctrTitle']"


def open_zip(content: bytes) -> zipfile.ZipFile:
    """Open a zip file without reading its parts.

    Raises BadZipFile if it is none or has too many parts.
    """
    if content.count(b"PK\x01\x02") > _MOST_PARTS:
        raise zipfile.BadZipFile(f"it has more than {_MOST_PARTS:,} parts")
    try:
        return zipfile.ZipFile(BytesIO(content))
    except (NotImplementedError, ValueError) as error:
        raise zipfile.BadZipFile(str(error)) from error


def part_name(name: str) -> str:
    """Return a part's name as it is compared.

    Some programs write backslashes or another case.
    """
    return name.replace("\\", "/").lower()


class Archive:
    """The parts of a zipped document; `kind` is its name for messages."""

    def __init__(self, content: bytes, kind: str) -> None:
        self._kind = kind
        try:
            self._zip = open_zip(content)
        except zipfile.BadZipFile as error:
            raise SourceError(f"a damaged {kind} file: {one_line(error)}") from error
        self._entries = {part_name(entry.filename): entry for entry in self._zip.infolist()}
        self._room = LONGEST_PARTS

    def __contains__(self, name: str) -> bool:
        return part_name(name) in self._entries

    def read(self, name: str) -> bytes:
        """Return a part; the length in its entry is not trusted."""
        try:
            entry = self._entries[part_name(name)]
            if entry.compress_type not in _METHODS:
                raise zipfile.BadZipFile(f"{name} is neither stored nor deflated")
            chunks = []
            too_long = SourceError(f"unpacks to more than {LONGEST_PARTS >> 20} MiB")
            if entry.file_size > self._room:
                raise too_long
            with self._zip.open(entry) as stream:
                while chunk := stream.read(_CHUNK):
                    self._room -= len(chunk)
                    if self._room < 0:
                        raise too_long
                    chunks.append(chunk)
            return b"".join(chunks)
        except KeyError as error:
            raise SourceError(f"a damaged {self._kind} file: no part {name!r}") from error
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise SourceError(f"a damaged {self._kind} file: {one_line(error)}") from error
        except RuntimeError as error:
            raise SourceError("encrypted; save a copy without its password") from error

    def xml(self, name: str) -> Any:
        """Return the root element of a part; refuse a part with entities of its own."""
        return root_of(self.read(name), f"a damaged {self._kind} file: {name}")

    def properties(self) -> tuple[str, dict[str, Json]]:
        """Return the title, and author, dates and keywords of an Office document."""
        if "docProps/core.xml" not in self:
            return "", {}
        properties = {
            element.tag.rpartition("}")[2]: element.text
            for element in self.xml("docProps/core.xml")
            if isinstance(element.tag, str)
        }
        created = one_line(properties.get("created"))
        return one_line(properties.get("title")), nonempty_metadata(
            author=properties.get("creator"),
            date=created[:10],
            created=iso_date(created),
            keywords=properties.get("keywords"),
        )


def read_pptx(content: bytes) -> Parsed:
    """Return the slides of a presentation as pages, with titles as headings, and their notes."""
    archive = Archive(content, "PPTX")
    slides = relations(archive, "ppt/presentation.xml")
    order = archive.xml("ppt/presentation.xml").xpath(_SLIDE_LIST)
    text = OutlinedText()
    missing = 0
    damaged = 0
    for number, slide in enumerate(order, 1):
        id_ = next((v for k, v in slide.items() if k.endswith("}id")), "")
        path = slides[id_].target if id_ in slides else ""
        if path not in archive:
            missing += 1
            continue
        text.mark("page", str(number))
        shapes = archive.xml(path).xpath("//*[local-name()='txBody']")
        titles = [shape for shape in shapes if shape.xpath(_IS_TITLE) and shape_text(shape)]
        title = one_line(" ".join(map(shape_text, titles)))
        # The text of a slide without a title does not belong to an earlier heading.
        text.mark("heading", title or f"Slide {number}", 1)
        text.add(title)
        for shape in shapes:
            if shape not in titles:
                text.add(shape_text(shape))
        damaged += _add_drawings(text, archive, path)
        _add_notes(text, archive, path)
    title, metadata = archive.properties()
    losses = []
    if missing:
        losses.append(Loss("parts", f"missing slides: {missing} of {len(order)}"))
    if damaged:
        losses.append(Loss("parts", f"missing or damaged charts and diagrams: {damaged}"))
    return text.parsed(None, metadata, title)._replace(losses=tuple(losses))


def _add_drawings(text: OutlinedText, archive: Archive, slide: str) -> int:
    """Add the words of the charts and diagrams of a slide; return how many cannot be read."""
    damaged = 0
    for kind, target in relations(archive, slide).values():
        if kind in _DRAWINGS:
            try:
                text.add(drawing_text(archive.xml(target)))
            except SourceError:
                damaged += 1
    return damaged


def _add_notes(text: OutlinedText, archive: Archive, slide: str) -> None:
    body = "//*[local-name()='sp'][.//*[local-name()='ph'][@type='body']]"
    for kind, target in relations(archive, slide).values():
        if kind == "notesSlide" and target in archive:
            for shape in archive.xml(target).xpath(body):
                text.add(shape_text(shape))


def read_epub(content: bytes) -> Parsed:
    """Return the chapters of a book in reading order."""
    book = Archive(content, "EPUB")
    container = book.xml("META-INF/container.xml")
    package_path = next(iter(container.xpath("//*[local-name()='rootfile']/@full-path")), "")
    package = book.xml(package_path)
    files = {
        item.get("id"): posixpath.normpath(
            posixpath.join(
                posixpath.dirname(package_path), unquote(item.get("href", "").partition("#")[0])
            )
        )
        for item in package.xpath("//*[local-name()='manifest']/*")
        if "html" in item.get("media-type", "") and "nav" not in item.get("properties", "").split()
    }
    spine = package.xpath("//*[local-name()='spine']/*/@idref")
    # Some books list a file again for each of its sections.
    chapters = dict.fromkeys(files[id_] for id_ in spine if files.get(id_, "") in book)
    if not chapters:
        raise SourceError("a damaged EPUB file: it names no chapter")
    if "META-INF/encryption.xml" in book:
        locked = book.xml("META-INF/encryption.xml").xpath("//@URI")
        if any(unquote(path) in chapters for path in locked):
            raise SourceError("encrypted (digital rights management); a copy without it is needed")
    text = OutlinedText()
    for chapter in chapters:
        root = tree_of(page_text(book.read(chapter)))
        if root is not None:
            BlockWriter(text).write(root)
    properties = {
        name: next(
            iter(package.xpath(f"//*[local-name()='metadata']/*[local-name()='{name}']/text()")), ""
        )
        for name in ("title", "creator", "language", "date")
    }
    metadata: dict[str, Json] = nonempty_metadata(
        author=properties["creator"], date=properties["date"], language=properties["language"]
    )
    return text.parsed(one_line(properties["title"]) or None, metadata)


def shape_text(shape: Any) -> str:
    """Return the lines of a drawn shape."""
    lines = (
        "".join(
            "\n" if element.tag.endswith("}br") else element.text or ""
            for element in paragraph.xpath(".//*[local-name()='t' or local-name()='br']")
        )
        for paragraph in shape.xpath(".//*[local-name()='p']")
    )
    return "\n".join(line.strip() for line in lines if line.strip())


def drawing_text(drawing: Any) -> str:
    """Return the different words of a chart or diagram of Office, a line each."""
    words = "//*[local-name()='t'] | //*[local-name()='strCache']//*[local-name()='v']"
    texts = dict.fromkeys(one_line(word.text) for word in drawing.xpath(words))
    return "\n".join(filter(None, texts))


def root_of(content: bytes, fault: str) -> Any:
    """Return the root element of XML; `fault` begins the message for invalid XML."""
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    entities = SourceError("declares XML entities, which are not expanded")
    try:
        root = etree.fromstring(content, parser)
    except etree.XMLSyntaxError as error:
        # The parser stops at entities that grow.
        if b"<!ENTITY" in content:
            raise entities from error
        raise SourceError(f"{fault}: {one_line(error)}") from error
    types = root.getroottree().docinfo.internalDTD
    if types is not None and any(types.iterentities()):
        raise entities
    return root


class Relation(NamedTuple):
    """A reference from a part of an Office document to another: its kind and target."""

    kind: str
    target: str


def relations(archive: Archive, part: str) -> dict[str, Relation]:
    """Return by id the parts that a part refers to; the empty name is the document itself."""
    folder, name = posixpath.split(part)
    path = posixpath.join(folder, "_rels", f"{name}.rels")
    if path not in archive:
        return {}
    return {
        element.get("Id", ""): Relation(
            element.get("Type", "").rpartition("/")[2],
            posixpath.normpath(posixpath.join("/", folder, element.get("Target", "")))[1:],
        )
        for element in archive.xml(path)
        if isinstance(element.tag, str) and element.get("TargetMode") != "External"
    }
