"""The answers or the error of an index, from a process that may crash."""

import contextlib
import io

import workload
from forked import in_child

from cli.main import run
from retriever.errors import DamagedIndexError, RetrieverError
from retriever.index import Index
from retriever.search import SearchSettings

QUERIES = [
    *("onlyd5v1 word14", "onlyd125v1 word23", "word3 word7", "word20 word21 word22"),
    " ".join(workload.VOCABULARY[::7]),
]
FILTER = "number < 60 or number >= 120"


def answers(folder):
    """What searches in every mode find, with all that a hit says."""
    found = []
    with Index.open(folder) as index:
        for mode in ("bm25", "dense", "hybrid"):
            for where in (None, FILTER):
                settings = SearchSettings(mode=mode, k=10)
                found += [
                    [[hit.id, hit.score, hit.passage, hit.metadata] for hit in hits]
                    for hits in index.search_many(QUERIES, settings, where=where)
                ]
    return found


def asked(folder):
    """``answers`` and what they are, ``damaged`` or ``refused`` and the one line that says why."""
    return examined(folder)[2:]


def examined(folder):
    """Exit code and stderr of `retriever verify`, and then what `asked` gives."""

    def examine():
        err = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
            code = run(["verify", "-i", str(folder)])
        try:
            return [code, err.getvalue(), "answers", answers(folder)]
        except DamagedIndexError as error:
            return [code, err.getvalue(), "damaged", str(error)]
        except RetrieverError as error:
            return [code, err.getvalue(), "refused", str(error)]

    status, told = in_child(examine)
    assert status == 0, told
    code, lines, kind, said = told
    assert kind == "answers" or "\n" not in said
    return code, lines, kind, said


def files(folder):
    """Every file of an index but its locks and the empty log, relative to it."""
    return sorted(
        path.relative_to(folder)
        for path in folder.rglob("*")
        if path.is_file() and path.name != "writer.lock" and "sqlite-" not in path.name
    )
