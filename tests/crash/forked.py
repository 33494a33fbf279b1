"""Work in forked processes, which may be killed, and its result.

They exit without cleanup. FAISS runs on one thread there: threads that it started before are not
forked with it. What most of them use is loaded here, once.
"""

import gc
import json
import os
import traceback
import warnings
from importlib import import_module

from indexes.vectors.library import load_faiss
from retriever.documents import Analyzer

USED = """
    Stemmer filelock multiprocessing.synchronize numpy.random pyroaring indexes.filters.facets
    retriever.documents.kinds.mail retriever.documents.reader retriever.index.transfer.export
    cli.commands.compact cli.commands.delete cli.commands.export cli.commands.import_
    cli.commands.index cli.commands.refresh cli.commands.reindex cli.commands.snapshot
    cli.commands.verify
"""
for name in USED.split():
    import_module(name)
FAISS = load_faiss()
# Folds the lists of stop words.
Analyzer()


def in_child(action):
    """Run `action`, which returns JSON, in a forked process.

    Returns the exit status (0, 1 for an exception, minus the number of a signal), and what `action`
    returned, the text of the exception, or None where the process was killed.
    """
    receive, send = os.pipe()
    with warnings.catch_warnings():
        # Python warns about forking with threads; the child uses none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status, answer = 1, ""
        try:
            gc.disable()
            FAISS.omp_set_num_threads(1)
            answer = json.dumps(action())
            status = 0
        except BaseException:
            answer = json.dumps(traceback.format_exc())
        finally:
            with os.fdopen(send, "w") as pipe:
                pipe.write(answer)
            os._exit(status)
    os.close(send)
    with os.fdopen(receive) as pipe:
        answer_text = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status, json.loads(answer_text) if answer_text and status >= 0 else None
