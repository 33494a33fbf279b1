"""Org, reStructuredText, AsciiDoc and LaTeX: titles, and headings with their levels and labels."""

from __future__ import annotations

import time

import pytest

from retriever.documents.file_kinds import is_document, kind_of
from retriever.documents.kinds.markup import read_asciidoc, read_latex, read_org, read_rst

ORG = """#+AUTHOR: Kim
#+title: Notes on /owls/
#+TODO: WAIT(w) | GONE
* TODO [#B] Barn owls [2/5]   :birds:night:
*not a heading*
** WAIT The [[https://owl.example][snowy]] one
*** Plans for snake_case and =x_y=
***** Deep
"""
RST = """.. _owls:
.. A comment
   of two lines

==========
Owl guide
==========

:Author: Kim

Kinds of ``strix``
------------------

A paragraph
of two lines
------------

See :doc:`the atlas <atlas>`
~~~~~~~~~~~~~~~~~~~~~~~~~~~~

=====  ====
Owl    Size
=====  ====

::

    Not
    ===

- item
------

Food_
-----
"""
ASCIIDOC = """// A comment
= The *owl* book
Kim Example
:bird: Snowy owl

== {bird} [[snowy]]

----
== Not
----

Old form
--------

....
Not
---
....

text
== Not

[#food]
=== Food, see link:f.html[the list] ===
"""
LATEX = r"""% \title{No}
\documentclass{book}
\title[Owls]{The \emph{Great} \textbf{Book of {\itshape Owls}}\thanks{Of Kim}}
\begin{document}
\chapter{Fran\c{c}ois \& M\"uller, na\"{\i}ve}
\section*{Half \% $\alpha$-owls~\LaTeX{}\label{sec:x}} % \section{No}
\subsection[Short]{\texorpdfstring{$E$}{Energy} of\footnote{a {b} c} owls}
\begin{verbatim}
\section{No}
\end{verbatim}
\begin{frame}[fragile]{A slide}
\sectionmark{No}
"""


@pytest.mark.parametrize(
    ("read", "text", "title", "headings"),
    [
        (
            read_org,
            ORG,
            "Notes on owls",
            [
                (1, "Barn owls"),
                (2, "The snowy one"),
                (3, "Plans for snake_case and x_y"),
                (5, "Deep"),
            ],
        ),
        (
            read_rst,
            RST,
            "Owl guide",
            [(1, "Owl guide"), (2, "Kinds of strix"), (3, "See the atlas"), (2, "Food")],
        ),
        (
            read_asciidoc,
            ASCIIDOC,
            "The owl book",
            [(1, "The owl book"), (2, "Snowy owl"), (2, "Old form"), (3, "Food, see the list")],
        ),
        (
            read_latex,
            LATEX,
            "The Great Book of Owls",
            [
                (2, "François & Müller, naïve"),
                (3, "Half % α-owls LaTeX"),
                (4, "Energy of owls"),
                (5, "A slide"),
            ],
        ),
    ],
)
def test_markup_titles_and_headings_become_outline(read, text, title, headings):
    document = read(text)
    marks = [mark for mark in document.outline if mark.kind == "heading"]
    assert document.title == title
    assert [(mark.level, mark.label) for mark in marks] == headings
    assert document.text == text.strip()
    assert all(text[mark.offset - 1 : mark.offset] in ("", "\n") for mark in marks)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (read_org, "plain\n *no\n#+begin_src\n"),
        (read_rst, "plain\n\n----\n\nplain\n..\n\n  Quoted\n  ------\n\nLonger than it\n---\n"),
        (read_asciidoc, "plain\n\n====\nexample\n====\n\n|===\n| a\n|===\n"),
        (read_latex, "\\section{never closed\n\\newcommand{\\x}{y}\n\\\\section{no}\n"),
    ],
)
def test_text_like_markup_heading_is_no_heading(read, text):
    document = read(text)
    assert document.title is None
    assert [mark.kind for mark in document.outline] == ["line"]


def test_markup_title_counts_only_at_beginning_of_text():
    for read, text in ((read_rst, "Words.\n\nOwls\n====\n"), (read_asciidoc, "Words.\n\n= Owls\n")):
        document = read(text)
        assert document.title is None
        assert document.outline[1].label == "Owls"


def test_files_with_markup_suffixes_are_documents():
    for suffix in ("org", "rst", "adoc", "asciidoc", "tex", "ltx"):
        assert kind_of(f"a.{suffix}") not in ("text", None)
        assert is_document(f"a.{suffix}")


@pytest.mark.parametrize("read", [read_org, read_rst, read_asciidoc, read_latex])
@pytest.mark.parametrize(
    "text",
    [
        "* " * 200_000,
        "* " + "[" * 300_000,
        "\\section{" * 50_000,
        "\\section{" + "{" * 490 + "}" * 491,
        "\\begin{verbatim}" * 40_000,
        "a\n=\n" * 60_000,
        "= " + "*a " * 100_000,
        "`" * 300_000 + "\n" + "=" * 300_000,
    ],
)
def test_hostile_markup_takes_little_time(read, text):
    started = time.process_time()
    read(text)
    assert time.process_time() - started < 5
