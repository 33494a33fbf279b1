"""Options in sections of a help page, derived from declared settings and shared by commands.

A command of the class `Command` lists its options section by section. A setting that the help page
does not list is given by its key, as in `--rrf-k 30` or `--set rrf-k=30`:

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
# The folder or other store of an index.
Location = Union[Path, "Store"]

MINILM: Final = "all-MiniLM-L6-v2"
MULTILINGUAL: Final = "multilingual-e5-small"
# As in `retriever.encoders.model_folders`, whose import is too slow for completion at a key press.
BUNDLED = (MINILM, MULTILINGUAL)
# The default that help pages show for settings of an existing index.
OWN = "the index's own"
# How long a query that refreshes waits for another process that is writing to the index, in s.
PATIENCE = 5.0
_GIVEN = "cli.options.given"
_CONFIG = "cli.options.config"
# The parameter of --set.
_SET = "set_"
_GROUPS = "__setting_groups__"
# The value of a flag in `--set KEY=VALUE`.
_FLAG_WORDS = {True: "yes", False: "no"}


def is_given(name: str) -> bool:
    """Return whether the user gave a parameter or setting of the running command."""
    context = click.get_current_context()
    if name in context.meta.get(_GIVEN, {}):
        return True
    source = context.get_parameter_source(name)
    return source not in (None, click.core.ParameterSource.DEFAULT)


def refuse(names: str, why: str) -> None:
    """Refuse parameters or settings that have no effect, if the user gave one."""
    context = click.get_current_context()
    unlisted = other_settings(context.command)
    for name in names.split():
        if is_given(name):
            key = name.replace("_", "-")
            flag = "--set " if key in unlisted else "--" if key[1:] else "-"
            raise click.UsageError(f"{flag}{key}: {why}; leave it out", context)


class Option(click.Option):
    """An option of a section of the help page; `show_default` can be any text."""

    def __init__(self, *args: Any, section: Section, **attributes: Any) -> None:
        super().__init__(*args, **{"show_default": True, **attributes})
        self.section = section

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Return the parts of the brackets after the help text."""
        extra = super().get_help_extra(ctx)
        if isinstance(self.show_default, str):
            extra["default"] = self.show_default
        return extra


option = functools.partial(click.option, cls=Option)


class _SettingGroup(NamedTuple):
    """Options and settings that a command takes as one value, in the parameter `name`."""

    name: str
    kind: Callable[..., Any]
    defaults: Mapping[str, Any]
    options: Collection[str]  # the fields that are options
    unlisted: Mapping[str, Setting]  # the fields that are keys of `--set`


class Command(click.Command):
    """A command with options in sections, in the order of `Section`, and with settings by key."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._groups: list[_SettingGroup] = getattr(self.callback, _GROUPS, [])
        self.unlisted_settings = {
            setting.key: setting for group in self._groups for setting in group.unlisted.values()
        }
        # The key of `--set` for each hidden option `--KEY`, by the parameter of the option.
        self._hidden_keys: dict[str, str] = {}
        if self.unlisted_settings:
            keys = ", ".join(self.unlisted_settings)
            set_option = Option(
                ["--set", _SET],
                multiple=True,
                metavar="KEY=VALUE",
                help="Set another setting by its key; repeatable. --KEY VALUE does the same. "
                f"`retriever inspect settings COMMAND` explains the keys. Keys: {keys}.",
                shell_complete=_complete_key,
                section="Other settings",
            )
            self.params.append(set_option)
            spellings = {spelling for parameter in self.params for spelling in parameter.opts}
            for key, setting in self.unlisted_settings.items():
                if _spelling(key) not in spellings:
                    hidden_option = _hidden_option(key, setting)
                    self.params.append(hidden_option)
                    self._hidden_keys[hidden_option.name or ""] = key

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options, and make the values that the command takes for groups of them."""
        rest = super().parse_args(ctx, args)
        if ctx.resilient_parsing:
            return rest
        configured = ctx.default_map or {}
        names = {setting.name for setting in self.unlisted_settings.values()}
        settings = {name: value for name, value in configured.items() if name in names}
        assignments = [("--set ", text) for text in ctx.params.pop(_SET, ())]
        for name, key in self._hidden_keys.items():
            value = ctx.params.pop(name)
            if value is not None:
                prefix = _spelling(key).removesuffix(key)
                assignments.append((prefix, f"{key}={_FLAG_WORDS.get(value, value)}"))
        if assignments:
            settings |= self._parse(assignments, ctx)
        ctx.meta[_GIVEN] = settings
        for group in self._groups:
            values = {name: ctx.params.pop(name) for name in group.options}
            values |= {name: settings[name] for name in group.unlisted if name in settings}
            ctx.params[group.name] = group.kind(**{**group.defaults, **values})
        return rest

    def _parse(self, assignments: Sequence[tuple[str, str]], ctx: click.Context) -> dict[str, Any]:
        """Return values by field; each KEY=VALUE comes with its prefix, ``--set `` or ``--``."""
        values: dict[str, Any] = {}
        for prefix, text in assignments:
            key, equals, value = text.partition("=")
            setting = self.unlisted_settings.get(key)
            if not equals or setting is None:
                keys = ", ".join(self.unlisted_settings)
                raise click.UsageError(
                    f"--set {text}: expected KEY=VALUE with one of the keys {keys}", ctx
                )
            if setting.name in values:
                raise click.UsageError(f"{prefix}{key}: given twice", ctx)
            values[setting.name] = parsed = setting.parse(value)
            if not setting.allows(parsed):
                raise click.UsageError(
                    f"{prefix}{key}: expected {setting.expected}, found {value!r}", ctx
                )
        return values

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section with its options, in the order in which they are declared."""
        for section, options in self.sections(ctx).items():
            with formatter.section(section):
                rows = [option.get_help_record(ctx) or ("", "") for option in options]
                formatter.write_dl(rows, col_max=22)

    def sections(self, ctx: click.Context) -> dict[Section, list[click.Option]]:
        """Return the options of each section that has any; `--help` belongs to `Output`."""
        by_section: dict[Section, list[click.Option]] = {section: [] for section in SECTIONS}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and not parameter.hidden:
                by_section[getattr(parameter, "section", "Output")].append(parameter)
        return {section: options for section, options in by_section.items() if options}


def _spelling(key: str) -> str:
    return f"--{key}" if key[1:] else f"-{key}"


def _hidden_option(key: str, declared: Setting) -> Option:
    """Return `--KEY VALUE`, the other spelling of `--set KEY=VALUE`; help pages do not list it."""
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
    """Return the settings that a command takes with `--set`, by key."""
    return command.unlisted_settings if isinstance(command, Command) else {}


def _complete_key(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    keys = other_settings(context.command)
    return [CompletionItem(f"{key}=") for key in keys if key.startswith(incomplete)]


@dataclass(frozen=True)
class Settings:
    """Options that a command takes as one value, in a parameter.

    The settings are the declared fields of a dataclass (`retriever.settings`). Any other field
    keeps its default, unless an option has its name.

    Attributes:
        name: the parameter of the command.
        kind: the dataclass, or with `declared` any callable that takes these settings by name.
        listed: names of the settings that are options, in the order of the help page. The other
            settings are keys of `--set`.
        options: further options, whose parameters are fields of `kind`.
        metavars: placeholders of values by field, in place of the derived ones.
        defaults: defaults by field, in place of the declared ones.
        leave_out: settings that the command does not take.
        shown_defaults: texts by field that the help shows as defaults.
        declared: the settings by field, if `kind` is not a dataclass.
    """

    name: str
    kind: Any
    listed: str = ""
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
        listed = self.listed.split()
        parameters: list[click.Parameter] = command.__dict__.setdefault("__click_params__", [])
        first = len(parameters)
        for name in reversed(listed):
            derive_option(declared[name], self.metavars.get(name))(command)
        for add_option in reversed(self.options):
            add_option(command)
        field_names = set(self.declared or (field_.name for field_ in fields(self.kind)))
        added = {parameter.name for parameter in parameters[first:] if parameter.name}
        excluded = {*listed, *self.leave_out}
        group = _SettingGroup(
            self.name,
            self.kind,
            self.defaults,
            added & field_names,
            {name: setting for name, setting in declared.items() if name not in excluded},
        )
        command.__dict__.setdefault(_GROUPS, []).insert(0, group)
        return command


def derive_option(setting: Setting, metavar: str | None = None) -> Decorator:
    """Return the option of a declared setting: type, choices, range, default and help.

    A default of None leaves the setting open. A flag that is not off by default has a negative.
    With a metavar, the help text lists the choices.
    """
    flag = _spelling(setting.key)
    section = cast("Section", setting.section or "Training")
    attributes: dict[str, Any] = {"help": setting.description, "default": setting.default}
    if setting.default is None and setting.words:
        attributes["show_default"] = setting.words
    if setting.kind is bool and setting.default is not False:
        flag = f"{flag}/--no-{setting.key}"
    elif setting.kind is bool:
        attributes["is_flag"] = True
    elif setting.choices:
        attributes |= {"type": click.Choice(setting.choices), "metavar": metavar}
        if metavar is not None:
            attributes["help"] = f"{setting.description} One of {setting.expected}."
    elif setting.kind in (int, float):
        attributes["type"] = _number_type(setting)
        attributes["metavar"] = metavar or ("N" if setting.kind is int else "NUMBER")
        attributes["callback"] = _require_finite
    elif setting.kind is Path:
        attributes |= {"type": click.Path(path_type=Path), "metavar": metavar or "FILE"}
    else:
        attributes |= {"multiple": setting.kind is tuple, "metavar": metavar or "NAME"}
        if metavar == "FILE":
            attributes["shell_complete"] = complete_path
    return option(flag, setting.name, section=section, **attributes)


def _number_type(setting: Setting) -> Any:
    """Return the type of a number for click, with its range if it has one."""
    high = None if setting.high == GREATEST else setting.high
    if setting.low is None and high is None:
        return setting.kind
    range_type: Any = click.IntRange if setting.kind is int else click.FloatRange
    return range_type(setting.low, high, setting.low_open, setting.high_open)


def _require_finite(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Refuse NaN and infinity, which click lets pass."""
    if isinstance(value, float) and not math.isfinite(value):
        raise click.BadParameter(f"expected a finite number, found {value}.", context, parameter)
    return value


def complete_path(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the path of a file or folder, by the shell's own means."""
    return [CompletionItem(incomplete, type="file")]


def complete_model(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of a bundled model, else a path."""
    names = [CompletionItem(name) for name in BUNDLED if name.startswith(incomplete)]
    return names or complete_path(context, parameter, incomplete)


json_option = option(
    "--json", "as_json", is_flag=True, help="Print JSON instead of text.", section="Output"
)
quiet_option = option(
    "-q", "--quiet", is_flag=True, help="Print neither progress nor a summary.", section="Output"
)


class _Pipeline(click.Path):
    """A file of settings, whose tables are defaults of the command's other options."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Read the file, and return its path."""
        # Imported only now, so that help pages stay fast.
        from eval import read_pipeline

        path = Path(value)
        context = click.get_current_context()
        pipeline = context.meta[_CONFIG] = read_pipeline(path)
        defaults: dict[str, Any] = {}
        for name, table in pipeline.to_json().items():
            if name in _TABLES.get(context.command.name or "", ()):
                defaults |= {name: table} if name == "model" else table
        if "query-map" in defaults:
            defaults["query-map"] = path.parent / defaults["query-map"]
        defaults.pop("synonyms", None)
        if pipeline.synonyms is not None:
            # `serve` too takes synonyms by option. It has the other settings from the pipeline.
            defaults["synonyms"] = path.parent / pipeline.synonyms
        context.default_map = {key.replace("-", "_"): value for key, value in defaults.items()}
        return path


# The tables of a file of settings that each command reads.
_TABLES = {"index": ("model", "index"), "query": ("search",), "search": ("search",)}
config_option = option(
    "--config",
    type=_Pipeline(),
    is_eager=True,
    expose_value=False,
    metavar="FILE",
    help="Take defaults from this file of `retriever tune`. Options override it.",
    section="Other settings",
)


def configured_search() -> SearchSettings | None:
    """Return the search settings of the file of --config; None without one."""
    pipeline = click.get_current_context().meta.get(_CONFIG)
    return None if pipeline is None else cast("SearchSettings", pipeline.search)


def output_folder(content: str) -> Callable[[F], F]:
    """Return a required --output; `content` is its help text."""
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
    """Return the path of a folder, or open the store of a URL, since a URL may hold a password."""
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
    help="Filter documents by metadata, such as 'year >= 2020'.",
    section="Search",
)


@contextmanager
def marking_filter_errors(where: str | None) -> Iterator[None]:
    """Print a filter that does not parse, with a caret below the faulty character."""
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
    help="Map the vectors of queries with the trained map in this folder.",
    section="Ranking",
)
synonyms_option = option(
    "--synonyms",
    type=click.Path(path_type=Path),
    metavar="FILE",
    shell_complete=complete_path,
    help="File of synonyms for BM25: one group per line, separated by commas.",
    section="Ranking",
)


device_option = option(
    "--device",
    metavar="NAME",
    help="Device of the encoder, such as cpu or cuda.",
    show_default="GPU, if any",
    section="Encoder",
)
download_option = option(
    "--download",
    is_flag=True,
    help="Download the model if it is not in the local cache.",
    section="Encoder",
)


@dataclass(frozen=True)
class EncoderOptions:
    """An encoder and its device; `model` includes the other settings that are given."""

    model: str = ""
    layers: str | None = None
    pooling: str | None = None
    dtype: str | None = None
    device: str | None = None
    download: bool = False
    cache: bool = setting(
        False,
        "Keep vectors in $RETRIEVER_CACHE, or ~/.cache/retriever, and encode each text once.",
    )

    def __post_init__(self) -> None:
        named = {"layers": self.layers, "pooling": self.pooling, "dtype": self.dtype}
        if any(value is not None for value in named.values()):
            from retriever.encoders import parse_encoder

            object.__setattr__(self, "model", str(parse_encoder(self.model, **named)))

    def keywords(self) -> dict[str, Any]:
        """Return the keyword arguments of functions that open or create an index."""
        return {"model": self.model, "device": self.device, "download": self.download}

    def loading(self) -> Loading:
        """Return the device and the cache of vectors, for evaluations."""
        from eval import Loading
        from retriever.files import default_cache

        return Loading(self.device, self.download, default_cache() if self.cache else None)


def encoder_options(
    model: str,
    listed: str = "",
    *,
    default: str = "",
    dtype: str = "",
    cache: bool = False,
    automatic: bool = False,
    name: str = "encoder",
    kind: type[EncoderOptions] = EncoderOptions,
    kind_settings: str = "",
    kind_options: Sequence[Decorator] = (),
) -> Settings:
    """Return --model, --device, --download and more; the command takes `encoder: EncoderOptions`.

    Args:
        model: default shown for --model.
        listed: further options, some of ``layers pooling dtype``.
        default: default shown for these options, in place of the declared one.
        dtype: default shown for --dtype.
        cache: whether vectors are kept in the cache by default.
        automatic: whether --model takes ``auto``.
        name: parameter of the command, in place of ``encoder``.
        kind: class of its value, in place of `EncoderOptions`.
        kind_settings: settings of `kind` that are options.
        kind_options: further options, whose parameters are fields of `kind`.
    """
    options = [_model_option(model, automatic=automatic)]
    if listed:
        from retriever.encoders import EncoderSettings

        declared = declared_settings(EncoderSettings)
        for key in listed.split():
            words = (dtype if key == "dtype" else "") or default or declared[key].default_text
            changed = replace(declared[key], section="Encoder", words=words, default=None)
            options.append(derive_option(changed, "NAME"))
    return Settings(
        name,
        kind,
        kind_settings,
        options=[*options, device_option, download_option, *kind_options],
        defaults={"cache": cache},
        leave_out=() if cache else ("cache",),
    )


def _model_option(default: str, *, automatic: bool) -> Decorator:
    """Return --model; `default` is the default in its help."""
    auto = " For a new index, auto chooses a bundled model by the texts." if automatic else ""
    return option(
        "--model",
        default="",
        metavar="MODEL",
        shell_complete=complete_model,
        help="Encoder: a bundled model, a folder, a hub id in the local cache, a file of word "
        "vectors, or URL#NAME. Add settings as ::KEY=VALUE; `retriever inspect settings` lists "
        f"them.{auto}",
        show_default=default,
        section="Encoder",
    )
