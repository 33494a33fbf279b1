"""Options: in sections of a help page, derived from declared settings, and shared by commands.

A command of the class `Command` lists its options section by section. A setting that the help page
leaves out is given by its key, as in `--rrf-k 30` or `--set rrf-k=30`:

>>> @dataclass(frozen=True)
... class Ranking:
...     k: int = setting(10, "Number of hits.", low=1, section="Search")
...     rrf_k: float | None = setting(None, "Constant of rrf.", low=0, low_open=True)
>>> @click.command("query", cls=Command)
... @Settings("ranking", Ranking, "k")
... @json_option
... def query_command(ranking: Ranking, as_json: bool) -> None: ...
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar, Union, cast, get_args

import click
from click.shell_completion import CompletionItem

from retriever.settings import GREATEST, Setting, declared_settings, setting

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
# Where an index is: a folder, or another store.
Location = Union[Path, "Store"]

MINILM: Final = "all-MiniLM-L6-v2"
# As in `retriever.encoders.model_folders`, whose import takes longer than a key press should.
BUNDLED = (MINILM,)
# Defaults in help pages of commands that have an index; the second for those that can create one.
OWN = "the index's own"
# How long a query that refreshes waits for another process that is writing to the index, in s.
PATIENCE = 5.0
_GIVEN = "cli.options.given"
_CONFIG = "cli.options.config"
_PARTS = "__parts__"
# The value of a flag as `--set KEY=VALUE` has it.
_FLAG_WORDS = {True: "yes", False: "no"}


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


class Option(click.Option):
    """An option that belongs to a section of the help page; `show_default` can be in words."""

    def __init__(self, *args: Any, section: Section, **attributes: Any) -> None:
        super().__init__(*args, **{"show_default": True, **attributes})
        self.section = section

    def get_help_extra(self, ctx: click.Context) -> Any:
        """What stands in brackets after the help text."""
        extra = super().get_help_extra(ctx)
        if isinstance(self.show_default, str):
            extra["default"] = self.show_default
        return extra


option = functools.partial(click.option, cls=Option)


class Part(NamedTuple):
    """A dataclass that a command takes in the parameter `name`."""

    name: str
    kind: Callable[..., Any]
    defaults: Mapping[str, Any]
    # Its fields that are options, and those that are keys of `--set`.
    taken: Collection[str]
    others: Mapping[str, Setting]


class Command(click.Command):
    """A command of options in sections, in the order of `Section`, and of settings by key."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.parts: list[Part] = getattr(self.callback, _PARTS, [])
        self.others = {one.key: one for part in self.parts for one in part.others.values()}
        # Keys of `--set`, by the parameter of the option that is another spelling of it.
        self.unlisted: dict[str, str] = {}
        if self.others:
            keys = ", ".join(self.others)
            others = Option(
                ["--set", "others"],
                multiple=True,
                metavar="KEY=VALUE",
                help=f"One of {keys}, which `retriever inspect settings` explains; repeatable. "
                "--KEY VALUE is the same.",
                shell_complete=_complete_key,
                section="Other settings",
            )
            self.params.append(others)
            spellings = {spelling for one in self.params for spelling in one.opts}
            for key, setting in self.others.items():
                if _spelling(key) not in spellings:
                    unlisted = _unlisted_option(key, setting)
                    self.params.append(unlisted)
                    self.unlisted[unlisted.name or ""] = key

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options, and put together what the command takes as one value."""
        rest = super().parse_args(ctx, args)
        if ctx.resilient_parsing:
            return rest
        configured = ctx.default_map or {}
        names = {one.name for one in self.others.values()}
        given = {name: value for name, value in configured.items() if name in names}
        typed = [("--set ", text) for text in ctx.params.pop("others", ())]
        for name, key in self.unlisted.items():
            value = ctx.params.pop(name)
            if value is not None:
                before = _spelling(key).removesuffix(key)
                typed.append((before, f"{key}={_FLAG_WORDS.get(value, value)}"))
        if typed:
            given |= self._read(typed, ctx)
        ctx.meta[_GIVEN] = given
        for part in self.parts:
            values = {name: ctx.params.pop(name) for name in part.taken}
            values |= {name: given[name] for name in part.others if name in given}
            ctx.params[part.name] = part.kind(**{**part.defaults, **values})
        return rest

    def _read(self, typed: Sequence[tuple[str, str]], ctx: click.Context) -> dict[str, Any]:
        """Return values by field, of what stands before each KEY=VALUE (``--set `` or ``--``)."""
        values: dict[str, Any] = {}
        for before, text in typed:
            key, equals, value = text.partition("=")
            setting = self.others.get(key)
            if not equals or setting is None:
                keys = ", ".join(self.others)
                raise click.UsageError(
                    f"--set {text}: expected KEY=VALUE with one of the keys {keys}", ctx
                )
            if setting.name in values:
                raise click.UsageError(f"{before}{key}: given twice", ctx)
            values[setting.name] = parsed = setting.parse(value)
            if not setting.allows(parsed):
                raise click.UsageError(
                    f"{before}{key}: expected {setting.expected}, found {value!r}", ctx
                )
        return values

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


def _spelling(key: str) -> str:
    return f"--{key}" if key[1:] else f"-{key}"


def _unlisted_option(key: str, declared: Setting) -> Option:
    """Return `--KEY VALUE` as another spelling of `--set KEY=VALUE`; help pages do not list it."""
    is_flag = declared.kind is bool
    name = f"set_{key.replace('-', '_')}"
    return Option(
        [f"--{key}/--no-{key}" if is_flag else _spelling(key), name],
        default=None,
        type=None if is_flag else str,
        help=declared.description,
        hidden=True,
        section="Other settings",
    )


def other_settings(command: click.Command) -> Mapping[str, Setting]:
    """The settings that a command takes with `--set`, by key."""
    return command.others if isinstance(command, Command) else {}


def _complete_key(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    keys = other_settings(context.command)
    return [CompletionItem(f"{key}=") for key in keys if key.startswith(incomplete)]


@dataclass(frozen=True)
class Settings:
    """Options that a command takes as one value, a dataclass `kind`, in the parameter `name`.

    A declared setting (`retriever.settings`) is an option if it is named in `shown`, which is in
    the order of the help page, else a key of `--set`; `leave_out` has those that are neither. Any
    other field keeps its default, unless one of `options` has its name. `metavars`, `defaults`
    and `shown_defaults`, what the help says of them, are by field, in place of the derived ones.
    With `declared`, `kind` is any callable that takes these settings by name.
    """

    name: str
    kind: Any
    shown: str = ""
    options: Sequence[Decorator] = ()
    metavars: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    leave_out: Collection[str] = ()
    shown_defaults: Mapping[str, str] = field(default_factory=dict)
    declared: Mapping[str, Setting] | None = None

    def __call__(self, command: F) -> F:
        """Add the options to a command."""
        declared = dict(self.declared or declared_settings(self.kind))
        for name, value in self.defaults.items():
            declared[name] = replace(declared[name], default=value, words="")
        for name, words in self.shown_defaults.items():
            declared[name] = replace(declared[name], words=words)
        shown = self.shown.split()
        parameters: list[click.Parameter] = command.__dict__.setdefault("__click_params__", [])
        before = len(parameters)
        for name in reversed(shown):
            derived_option(declared[name], self.metavars.get(name))(command)
        for one in reversed(self.options):
            one(command)
        own = set(self.declared or (one.name for one in fields(self.kind)))
        taken = {one.name for one in parameters[before:] if one.name} & own
        left = {*shown, *self.leave_out}
        others = {name: one for name, one in declared.items() if name not in left}
        part = Part(self.name, self.kind, self.defaults, taken, others)
        command.__dict__.setdefault(_PARTS, []).insert(0, part)
        return command


def derived_option(one: Setting, metavar: str | None = None) -> Decorator:
    """The option of a declared setting: type, choices, range, default and help.

    A default of None leaves the setting open; a flag that is not off by default has a negative.
    With a metavar, choices are part of the help.
    """
    flag = _spelling(one.key)
    section = cast("Section", one.section or "Training")
    attributes: dict[str, Any] = {"help": one.description, "default": one.default}
    if one.default is None and one.words:
        attributes["show_default"] = one.words
    if one.kind is bool and one.default is not False:
        flag = f"{flag}/--no-{one.key}"
    elif one.kind is bool:
        attributes["is_flag"] = True
    elif one.choices:
        attributes |= {"type": click.Choice(one.choices), "metavar": metavar}
        if metavar is not None:
            attributes["help"] = f"{one.description} One of {one.expected}."
    elif one.kind in (int, float):
        limits: Any = (one.low, None if one.high == GREATEST else one.high)
        if limits != (None, None):
            ranged: Any = click.IntRange if one.kind is int else click.FloatRange
            attributes["type"] = ranged(*limits, one.low_open, one.high_open)
        else:
            attributes["type"] = one.kind
        attributes["metavar"] = metavar or ("N" if one.kind is int else "NUMBER")
        attributes["callback"] = _require_finite
    elif one.kind is Path:
        attributes |= {"type": click.Path(path_type=Path), "metavar": metavar or "FILE"}
    else:
        attributes |= {"multiple": one.kind is tuple, "metavar": metavar or "NAME"}
        if metavar == "FILE":
            attributes["shell_complete"] = complete_path
    return option(flag, one.name, section=section, **attributes)


def _require_finite(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Refuse NaN and infinity, which are within every range that click checks, or have none."""
    if isinstance(value, float) and not math.isfinite(value):
        raise click.BadParameter(f"expected a finite number, found {value}.", context, parameter)
    return value


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


class _Pipeline(click.Path):
    """A file of settings; some of its tables are the defaults of the command's other options."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path of the file, which is read."""
        # Imported only now, so that help pages stay fast.
        from eval import read_pipeline

        path = Path(value)
        context = click.get_current_context()
        pipeline = context.meta[_CONFIG] = read_pipeline(path)
        found: dict[str, Any] = {}
        for name, one in pipeline.to_json().items():
            if name in _TABLES.get(context.command.name or "", ()):
                found |= {name: one} if name == "model" else one
        if "query-map" in found:
            found["query-map"] = path.parent / found["query-map"]
        found.pop("synonyms", None)
        if pipeline.synonyms is not None:
            # Of the commands that search, `serve` too, which takes the others from `search`.
            found["synonyms"] = path.parent / pipeline.synonyms
        context.default_map = {name.replace("-", "_"): one for name, one in found.items()}
        return path


# Of --config, by command.
_TABLES = {"index": ("model", "index"), "query": ("search",), "search": ("search",)}
config_option = option(
    "--config",
    type=_Pipeline(),
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
synonyms_option = option(
    "--synonyms",
    type=click.Path(path_type=Path),
    metavar="FILE",
    shell_complete=complete_path,
    help="Groups of synonyms for BM25, one a line, separated by commas.",
    section="Ranking",
)


device_option = option(
    "--device",
    metavar="NAME",
    help="Device of the model: cpu, cuda, ...",
    show_default="GPU, if any",
    section="Encoder",
)
download_option = option(
    "--download",
    is_flag=True,
    help="Download a model that is not in the local cache.",
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
            from retriever.encoders import parse_encoder

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
    model: str,
    shown: str = "",
    *,
    own: str = "",
    dtype: str = "",
    cache: bool = False,
    name: str = "encoder",
    kind: type[EncoderOptions] = EncoderOptions,
    also: str = "",
    more: Sequence[Decorator] = (),
) -> Settings:
    """--model, --device and --download, with `also` and `more` of `kind`, which the command takes.

    `model` is what the help says is the model without --model. The settings in `shown`, some of
    ``layers pooling dtype``, are options too; `own` is what the help says is their default, and
    `dtype` what it says of that one. With `cache`, vectors are kept.
    """
    options: list[Decorator] = [
        option(
            "--model",
            default="",
            metavar="MODEL",
            shell_complete=complete_model,
            help="Folder, bundled model, cached hub id, file of word vectors, or URL#NAME; then "
            "::KEY=VALUE (`retriever inspect settings`).",
            show_default=model,
            section="Encoder",
        )
    ]
    if shown:
        from retriever.encoders import EncoderSettings

        declared = declared_settings(EncoderSettings)
        for one in shown.split():
            said = (dtype if one == "dtype" else "") or own or declared[one].shown
            changed = replace(declared[one], section="Encoder", words=said, default=None)
            options.append(derived_option(changed, "NAME"))
    return Settings(
        name,
        kind,
        also,
        options=[*options, device_option, download_option, *more],
        defaults={"cache": cache},
        leave_out=() if cache else ("cache",),
    )
