"""Options: in sections of a help page, derived from declared settings, and shared by commands.

A command of the class `Command` lists its options section by section. A setting without an option
of its own is given by its key, as in `--set rrf-k=30`:

>>> @dataclass(frozen=True)
... class Ranking:
...     k: int = setting(10, "Number of hits.", low=1, section="Search")
...     rrf_k: float | None = setting(None, "Constant of rrf.", low=0, low_open=True)
>>> @click.command("query", cls=Command)
... @settings("ranking", Ranking, "k")
... @json_option
... def query_command(ranking: Ranking, as_json: bool) -> None: ...
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, Union, cast, get_args

import click
from click.shell_completion import CompletionItem

from retriever.settings import GREATEST, Setting, declared_settings, format_value, setting

if TYPE_CHECKING:
    from eval import Loading
    from retriever import Store
    from retriever.search import SearchSettings

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
Section = Literal[
    "Index",
    "Service",
    "Input",
    "Search",
    "Ranking",
    "Scoring",
    "Training",
    "Encoder",
    "BM25",
    "Output",
    "Other settings",
]
SECTIONS: tuple[Section, ...] = get_args(Section)
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
# Where an index is: a folder, or another store.
Location = Union[Path, "Store"]

MINILM: Final = "all-MiniLM-L6-v2"
# As in `retriever.encoders.model_folders`, whose import takes longer than a key press should.
BUNDLED = (MINILM,)
# Defaults in help pages of commands that have an index; the second for those that can create one.
OWN = "the index's own"
_GIVEN = "cli.options.given"
_CONFIG = "cli.options.config"


def is_given(name: str) -> bool:
    """Whether the user gave a parameter or setting of the running command."""
    context = click.get_current_context()
    if name in context.meta.get(_GIVEN, {}):
        return True
    source = context.get_parameter_source(name)
    return source not in (None, click.core.ParameterSource.DEFAULT)


def refuse(names: str, why: str) -> None:
    """Refuse parameters or settings that have no effect, if the user gave one."""
    context = click.get_current_context()
    others = other_settings(context.command)
    for name in names.split():
        if is_given(name):
            key = name.replace("_", "-")
            flag = "--set " if key in others else "--" if key[1:] else "-"
            raise click.UsageError(f"{flag}{key}: {why}; leave it out", context)


class Command(click.Command):
    """A command whose help page lists its options in sections, in the order of `Section`."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section with its options, in the order in which they are declared."""
        for section, options in self.sections(ctx).items():
            with formatter.section(section):
                rows = [one.get_help_record(ctx) or ("", "") for one in options]
                formatter.write_dl(rows, col_max=22)

    def sections(self, ctx: click.Context) -> dict[Section, list[click.Option]]:
        """The options of each section that has any; `--help` belongs to `Output`."""
        found: dict[Section, list[click.Option]] = {section: [] for section in SECTIONS}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and not parameter.hidden:
                found[getattr(parameter, "section", "Output")].append(parameter)
        return {section: options for section, options in found.items() if options}


class _Option(click.Option):
    """An option that belongs to a section of the help page."""

    def __init__(
        self, *args: Any, section: Section, shown_default: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **{"show_default": True, **kwargs})
        self.section = section
        self.shown_default = shown_default

    def get_help_extra(self, ctx: click.Context) -> Any:
        """What stands in brackets after the help text."""
        extra = super().get_help_extra(ctx)
        if self.shown_default is not None:
            extra["default"] = self.shown_default
        return extra


def option(
    *names: str, section: Section, shown_default: str | None = None, **attributes: Any
) -> Callable[[F], F]:
    """As `click.option`, in a section of the help page; `shown_default` is its default in words."""
    return click.option(
        *names, cls=_Option, section=section, shown_default=shown_default, **attributes
    )


class _OtherSettings(_Option):
    """`--set KEY=VALUE`: the declared settings of a command that have no option of their own."""

    def __init__(self, declared: Mapping[str, Setting]) -> None:
        super().__init__(
            ["--set", "others"],
            multiple=True,
            expose_value=False,
            metavar="KEY=VALUE",
            help=f"One of {', '.join(declared)}, which `retriever inspect settings` explains; "
            "repeatable.",
            section="Other settings",
        )
        self.declared = declared

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The keys."""
        return [CompletionItem(f"{key}=") for key in self.declared if key.startswith(incomplete)]

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """Read the values, for `settings`; the command gets no parameter."""
        configured = ctx.default_map or {}
        names = [one.name for one in self.declared.values()]
        known = {name: configured[name] for name in names if name in configured}
        found: dict[str, Any] = {}
        for text in opts.get("others") or ():
            key, equals, value = text.partition("=")
            one = self.declared.get(key)
            if not equals or one is None:
                keys = ", ".join(self.declared)
                raise click.UsageError(
                    f"--set {text}: expected KEY=VALUE with one of the keys {keys}", ctx
                )
            if one.name in found:
                raise click.UsageError(f"--set {key}: given twice", ctx)
            found[one.name] = read = one.parse(value)
            if not one.allows(read):
                raise click.UsageError(
                    f"--set {key}: expected {one.expected}, found {value!r}", ctx
                )
        ctx.meta[_GIVEN] = known | found
        return None, args


def other_settings(command: click.Command) -> Mapping[str, Setting]:
    """The settings that a command takes with `--set`, by key."""
    found = (one.declared for one in command.params if isinstance(one, _OtherSettings))
    return next(found, {})


def settings(
    name: str,
    kind: Callable[..., T],
    shown: str = "",
    *,
    options: Sequence[Decorator] = (),
    metavars: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] | None = None,
    leave_out: Collection[str] = (),
    shown_defaults: Mapping[str, str] | None = None,
) -> Callable[[F], Callable[..., Any]]:
    """Options that a command takes as one value, a dataclass `kind`, in the parameter `name`.

    A declared setting (`retriever.settings`) is an option if it is named in `shown`, which is in
    the order of the help page, else a key of `--set`; `leave_out` has those that are neither. Any
    other field keeps its default, unless one of `options` has its name. `metavars`, `defaults`
    and `shown_defaults`, what the help says of them, are by field, in place of the derived ones.
    """
    parts = {field.name: field.default for field in fields(kind)}  # type: ignore[arg-type]
    own = {**(defaults or {})}
    declared = dict(declared_settings(kind))
    for field, said in (shown_defaults or {}).items():
        declared[field] = replace(declared[field], shown=said)
    for field, value in own.items():
        declared[field] = replace(declared[field], shown=format_value(value))
    names = shown.split()
    derived = [
        derived_option(
            declared[field], own.get(field, parts[field]), metavar=(metavars or {}).get(field)
        )
        for field in names
    ]
    others = {
        one.key: one
        for field, one in declared.items()
        if field not in names and field not in leave_out
    }

    def decorate(command: F) -> Callable[..., Any]:
        parameters: list[click.Parameter] = command.__dict__.setdefault("__click_params__", [])
        before = len(parameters)

        @functools.wraps(command)
        def call(**arguments: Any) -> Any:
            given = click.get_current_context().meta.get(_GIVEN, {})
            values = own | {part: arguments.pop(part) for part in taken}
            values |= {one.name: given[one.name] for one in others.values() if one.name in given}
            arguments[name] = kind(**values)
            return command(**arguments)

        made: Callable[..., Any] = call
        for one in reversed([*options, *derived]):
            made = one(made)
        taken = {one.name for one in parameters[before:] if one.name} & parts.keys()
        if others:
            merged = dict(others)
            for parameter in parameters[:]:
                if isinstance(parameter, _OtherSettings):
                    parameters.remove(parameter)
                    merged |= parameter.declared
            parameters.append(_OtherSettings(merged))
        return made

    return decorate


def derived_option(one: Setting, default: Any, *, metavar: str | None = None) -> Decorator:
    """The option of a declared setting: type, choices, range, default and help.

    A default of None leaves the setting open; a flag that is not off by default has a negative.
    With a metavar, choices are part of the help.
    """
    flag = f"--{one.key}" if one.key[1:] else f"-{one.key}"
    section = cast("Section", one.section or "Training")
    attributes: dict[str, Any] = {"help": one.description, "section": section, "default": default}
    if default is None:
        attributes["shown_default"] = one.shown or None
    if one.kind is bool and default is not False:
        flag = f"{flag}/--no-{one.key}"
    elif one.kind is bool:
        attributes["is_flag"] = True
    elif one.choices:
        attributes["type"] = click.Choice(one.choices)
        if metavar is not None:
            attributes["metavar"] = metavar
            attributes["help"] = f"{one.description} One of {one.expected}."
    elif one.kind in (int, float):
        high = None if one.high == GREATEST else one.high
        if one.kind is int:
            low = None if one.low is None else int(one.low)
            attributes["type"] = click.IntRange(low, None if high is None else int(high))
        elif one.low is None and high is None:
            attributes["type"] = click.FLOAT
        else:
            attributes["type"] = click.FloatRange(
                one.low, high, min_open=one.low_open, max_open=one.high_open
            )
        attributes["metavar"] = metavar or ("N" if one.kind is int else "NUMBER")
    else:
        attributes["metavar"] = metavar or "NAME"
    return option(flag, one.name, **attributes)


def complete_path(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """A file or a folder, by the shell's own means."""
    return [CompletionItem(incomplete, type="file")]


def complete_model(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The name of a bundled model, else a path."""
    found = [CompletionItem(name) for name in BUNDLED if name.startswith(incomplete)]
    return found or complete_path(context, parameter, incomplete)


json_option = option("--json", "as_json", is_flag=True, help="Print JSON.", section="Output")
quiet_option = option(
    "-q", "--quiet", is_flag=True, help="Print neither progress nor a summary.", section="Output"
)


def config_option(*tables: str) -> Decorator:
    """--config: what a file of settings has in some of its tables, in place of the defaults."""

    def use(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
        if value is not None:
            # Imported only now, so that help pages stay fast.
            from eval import read_pipeline

            pipeline = ctx.meta[_CONFIG] = read_pipeline(value)
            found: dict[str, Any] = {}
            for name, one in pipeline.to_json().items():
                if name in tables:
                    found |= {name: one} if name == "model" else one
            if "query-map" in found:
                found["query-map"] = value.parent / found["query-map"]
            ctx.default_map = {name.replace("-", "_"): one for name, one in found.items()}

    return option(
        "--config",
        type=click.Path(path_type=Path),
        callback=use,
        is_eager=True,
        expose_value=False,
        metavar="FILE",
        help="Settings that `retriever tune` wrote, in place of the defaults; other options win.",
        section="Input",
    )


def configured_search() -> SearchSettings | None:
    """How the file of --config ranks; None without one."""
    pipeline = click.get_current_context().meta.get(_CONFIG)
    return None if pipeline is None else cast("SearchSettings", pipeline.search)


def output_folder(content: str) -> Callable[[F], F]:
    """--output, which the command needs; `content` is what the help says is in the folder."""
    return option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        required=True,
        metavar="FOLDER",
        help=content,
        section="Output",
    )


def index_location(value: str) -> Location:
    """A folder, or the URL of another store, which is opened so that no password is printed."""
    if "://" not in value:
        return Path(value)
    # Imported only now, so that help pages stay fast.
    from retriever import open_store

    return open_store(value)


index_option = option(
    "-i",
    "--index",
    "folder",
    type=index_location,
    metavar="INDEX",
    default=".retriever",
    envvar="RETRIEVER_INDEX",
    show_envvar=True,
    shell_complete=complete_path,
    help="Index folder, or the URL of another store.",
    section="Index",
)
where_option = option(
    "--where",
    metavar="FILTER",
    help="Filter by metadata of the documents, such as 'year >= 2020'.",
    section="Search",
)


@contextmanager
def pointing(where: str | None) -> Iterator[None]:
    """If the filter `where` does not parse, print it with a caret below the faulty character."""
    try:
        yield
    except Exception as error:
        # Imported only now, so that help pages stay fast.
        from retriever import FilterError, point_at

        if isinstance(error, FilterError) and error.position is not None:
            click.echo(point_at(where or "", error.position), err=True)
        raise


query_map_option = option(
    "--query-map",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Search with this trained map of the vectors of queries.",
    section="Ranking",
)


device_option = option(
    "--device",
    metavar="NAME",
    help="Device of the model: cpu, cuda, ...",
    shown_default="GPU, if any",
    section="Encoder",
)
download_option = option(
    "--download",
    is_flag=True,
    help="Download a model that is not in the local cache.",
    section="Encoder",
)


def model_option(default: str) -> Callable[[F], F]:
    """--model; `default` is what the help says is used without it."""
    return option(
        "--model",
        default="",
        metavar="MODEL",
        shell_complete=complete_model,
        help="Folder, bundled model, cached hub id, file of word vectors, or URL#NAME; then "
        "::KEY=VALUE (`retriever inspect settings`).",
        shown_default=default,
        section="Encoder",
    )


@dataclass(frozen=True)
class EncoderOptions:
    """An encoder, and where it runs; `model` has the other settings that are given."""

    model: str = ""
    layers: str | None = None
    pooling: str | None = None
    dtype: str | None = None
    device: str | None = None
    download: bool = False
    cache: bool = setting(
        False,
        "Keep vectors in $RETRIEVER_CACHE, or ~/.cache/retriever, so that a text is encoded once.",
    )

    def __post_init__(self) -> None:
        named = {"layers": self.layers, "pooling": self.pooling, "dtype": self.dtype}
        if any(value is not None for value in named.values()):
            from retriever.encoders.settings import parse_encoder

            object.__setattr__(self, "model", str(parse_encoder(self.model, **named)))

    def keywords(self) -> dict[str, Any]:
        """The encoder, and where it runs, as what opens or makes an index takes them."""
        return {"model": self.model, "device": self.device, "download": self.download}

    def loading(self) -> Loading:
        """Where it runs, and where its vectors are kept, as evaluations take them."""
        from eval import Loading
        from retriever.files import default_cache

        return Loading(self.device, self.download, default_cache() if self.cache else None)


def encoder_options(
    model: str, shown: str = "", *, own: str = "", dtype: str = "", cache: bool = False
) -> Callable[[F], Callable[..., Any]]:
    """--model, --device and --download: the command takes `encoder: EncoderOptions`.

    `model` is what the help says is the model without --model. The settings in `shown`, some of
    ``layers pooling dtype``, are options too; `own` is what the help says is their default, and
    `dtype` what it says of that one. With `cache`, vectors are kept.
    """
    options: list[Decorator] = [model_option(model)]
    if shown:
        from retriever.encoders.settings import EncoderSettings

        declared = declared_settings(EncoderSettings)
        for name in shown.split():
            said = (dtype if name == "dtype" else "") or own or declared[name].shown
            one = replace(declared[name], section="Encoder", shown=said)
            options.append(derived_option(one, None, metavar="NAME"))
    return settings(
        "encoder",
        EncoderOptions,
        options=[*options, device_option, download_option],
        defaults={"cache": cache},
        leave_out=() if cache else ("cache",),
    )
