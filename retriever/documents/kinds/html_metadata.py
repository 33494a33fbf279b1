"""Title, author, dates, keywords and language that a web page states about itself.

They stand in elements `meta`, in JSON-LD, in attributes `itemprop`, or in `time`. Nothing is
guessed from addresses or from the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from retriever.documents.dates import any_date
from retriever.documents.document import Json
from retriever.documents.kinds import nonempty_metadata, one_line

# Names of elements `meta`, best first, in lower case.
_PUBLISHED = (
    "article:published_time",
    "date",
    "dc.date",
    "dc.date.issued",
    "dcterms.created",
    "dcterms.issued",
    "datepublished",
    "citation_publication_date",
)
_MODIFIED = ("article:modified_time", "og:updated_time", "dcterms.modified", "last-modified")
_AUTHOR = ("author", "dc.creator", "dcterms.creator", "citation_author", "article:author")
_TITLE = ("og:title", "dc.title", "citation_title")
# Maximum length in characters of a block of JSON-LD, and number of blocks and of their objects.
_LONGEST_JSON = 1 << 20
_MOST_BLOCKS = 20
_MOST_OBJECTS = 200
# Objects that describe something else than the page.
_OTHER_OBJECT = re.compile(r"Organization|Person|BreadcrumbList|WebSite|ImageObject|SearchAction")
# Null dates of programs are in the year 1, and in 1970.
_NULL_DATE = re.compile("0|1970-01-01")
_LINKED_DATA = re.compile(r"(?i)\s*application/ld\+json\s*(?:;|\Z)")
_ADDRESS = re.compile("(?i)(?:https?:)?//")


class PageFacts(NamedTuple):
    """The title and the metadata that a page states; empty strings and no fields if none."""

    title: str
    metadata: dict[str, Json]


def read_page_facts(root: Any) -> PageFacts:
    """Return what a page states about itself."""
    fields = {
        name: str(element.get("content"))
        for element in reversed(root.xpath("//meta[@content]"))
        for name in _meta_names(element)
    }
    objects = list(_linked_objects(root))
    title = one_line("".join(root.xpath("string(//title)")))
    metadata = nonempty_metadata(
        author=_author(root, fields, objects),
        date=_first_date(
            *_values(fields, _PUBLISHED),
            *_stated_in(objects, "datePublished", "dateCreated"),
            *_item_properties(root, "datePublished", "dateCreated"),
            *_time_elements(root),
        ),
        modified=_first_date(
            *_values(fields, _MODIFIED),
            *_stated_in(objects, "dateModified"),
            *_item_properties(root, "dateModified"),
        ),
        keywords=fields.get("keywords"),
        language=root.get("lang") or root.get("{http://www.w3.org/XML/1998/namespace}lang"),
    )
    stated_titles = [*_values(fields, _TITLE), *_stated_in(objects, "headline")]
    return PageFacts(title or next(filter(None, map(one_line, stated_titles)), ""), metadata)


def _meta_names(element: Any) -> Iterator[str]:
    """Yield the names of an element `meta` in lower case."""
    for attribute in ("name", "property", "http-equiv"):
        name = element.get(attribute)
        if name:
            yield name.lower()


def _values(fields: dict[str, str], names: Iterable[str]) -> Iterator[str]:
    """Yield the values of some fields, in the order of their names."""
    return (fields[name] for name in names if name in fields)


def _first_date(*texts: str) -> str:
    """Return the first text that is a date, in ISO 8601; empty if none is."""
    dates = filter(None, map(any_date, texts))
    return next((date for date in dates if not _NULL_DATE.match(date)), "")


def _author(root: Any, fields: dict[str, str], objects: list[dict[str, Any]]) -> str:
    """Return the author; an address is no name."""
    names = [
        *_values(fields, _AUTHOR),
        *_stated_in(objects, "author"),
        *_item_properties(root, "author"),
    ]
    return next((name for name in map(one_line, names) if name and not _ADDRESS.match(name)), "")


def _linked_objects(root: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of JSON-LD that may describe the page."""
    scripts = root.xpath("//script[@type]")
    blocks = [script for script in scripts if _LINKED_DATA.match(script.get("type"))]
    for block in blocks[:_MOST_BLOCKS]:
        text = block.text or ""
        if len(text) > _LONGEST_JSON:
            continue
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            continue
        for part in value if isinstance(value, list) else [value]:
            graph = part.get("@graph") if isinstance(part, dict) else None
            candidates = graph if isinstance(graph, list) else [graph or part]
            for candidate in candidates[:_MOST_OBJECTS]:
                if isinstance(candidate, dict) and not _is_other(candidate):
                    yield candidate


def _is_other(candidate: dict[str, Any]) -> bool:
    """Return whether an object says that it is no page."""
    return _OTHER_OBJECT.search(json.dumps(candidate.get("@type", ""))) is not None


def _stated_in(objects: Iterable[dict[str, Any]], *names: str) -> Iterator[str]:
    """Yield the texts of a property; of a person, or of several, the names."""
    for name in names:
        for candidate in objects:
            value = candidate.get(name)
            parts = value if isinstance(value, list) else [value]
            texts = [part.get("name") if isinstance(part, dict) else part for part in parts]
            text = ", ".join(text for text in texts if isinstance(text, str))
            if text:
                yield text


def _item_properties(root: Any, *names: str) -> Iterator[str]:
    """Yield the values of attributes `itemprop`."""
    for name in names:
        for element in root.xpath("//*[@itemprop=$name]", name=name)[:_MOST_OBJECTS]:
            stated = element.get("content") or element.get("datetime")
            named = element.xpath(".//*[@itemprop='name']")
            yield str(stated or (named[0] if named else element).text_content())


def _time_elements(root: Any) -> Iterator[str]:
    """Yield the time of publication that an element `time` says.

    It has `pubdate`, or is the only time in the headers of the only article.
    """
    for element in root.xpath("//time[@pubdate][@datetime]")[:1]:
        yield element.get("datetime")
    articles = root.xpath("//article")
    if len(articles) == 1:
        times = {element.get("datetime") for element in articles[0].xpath(".//header//time")}
        if len(times) == 1:
            yield times.pop() or ""
