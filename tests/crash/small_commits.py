"""The `retriever` command with commits of few passages, so that a run can be met between two."""

from functools import partial

import cli.main
import retriever.index.add
from retriever.index.add import CommitSettings

if __name__ == "__main__":
    retriever.index.add._CHUNK = 32
    retriever.index.add.CommitSettings = partial(CommitSettings, passages=32, window_passages=32)
    cli.main.main()
