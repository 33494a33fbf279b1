"""Watch the sources of an index and refresh the index when one changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from retriever.errors import BadInputError, IndexLockedError, require_extra
from retriever.index.sources.remembered import remembered_sources

if TYPE_CHECKING:
    from indexes import Store
    from retriever.index.index import Index
    from retriever.index.refreshing import RefreshReport


def watched(index: Index, stop: Event) -> Iterator[RefreshReport | BadInputError]:
    """Refresh an index when a source changes, until `stop`; yield each change and each error."""
    require_extra("watch", "watching sources", "watchfiles")
    # The last problems that were reported.
    reported: str | tuple[str, ...] = ""
    while not stop.is_set():
        sources = remembered_sources(index.store)
        folders = [source.path for source in sources if Path(source.path).is_dir()]
        is_due = True
        # The first refresh follows the first look, so that no change is between the two.
        for events in _watch_folders(index.store, folders, stop):
            try:
                # The system watches folders; files, which editors replace, are looked at once a
                # second.
                if is_due or events or len(folders) < len(sources):
                    report = index.refresh()
                    is_due = False
                    is_new = bool(report.problems) and report.problems != reported
                    reported = report.problems
                    # Every refresh reports a file that cannot be read.
                    if report.is_change or is_new:
                        yield report
            except IndexLockedError:
                # Another process writes; the next tick tries again.
                is_due = True
            except BadInputError as error:
                # A folder that comes back is another one.
                if reported != (reported := str(error)):
                    yield error
                stop.wait(1)
                break
            if remembered_sources(index.store) != sources:
                break


def _watch_folders(store: Store, folders: Sequence[str], stop: Event) -> Iterator[object]:
    """Yield what has changed below folders, once a second or sooner; empty for nothing."""
    if not folders:
        return iter(lambda: stop.wait(1), True)
    from watchfiles import watch

    # The index may be below a folder that is one of its sources.
    own = f"{store.folder.resolve()}/" if store.folder else "\n"
    events: Iterator[object] = watch(
        *folders,
        watch_filter=lambda _, path: not path.startswith(own),
        debounce=400,
        step=100,
        rust_timeout=1000,
        yield_on_timeout=True,
        ignore_permission_denied=True,
        stop_event=stop,
    )
    return events
