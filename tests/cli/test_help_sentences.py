"""The language of help pages: sentences that a newcomer reads once."""

from __future__ import annotations

import re

import click
import pytest

from cli.main import COMMANDS, cli
from cli.options import other_settings
from retriever.encoders import encoder_keys

LONGEST = 30
LONGEST_MEAN = 16
# Columns of a summary in the list of commands, on a terminal of 80 columns.
SUMMARY_COLUMNS = 63
PRIVATE_DIALECT = re.compile(
    r"\b(of which|those of|that of|as of|likewise|others|of it alone|is refused|are refused|"
    r"(?:the|a|an|this|that|each|every|another|better|new|trained|free|first|last) one)\b"
)
IMPERATIVE = re.compile(
    r"(Add|Check|Choose|Combine|Compare|Copy|Correlate|Delete|Diagnose|Do|Encode|Evaluate|Find|"
    r"Fine-tune|Learn|List|Look|Make|Merge|Predict|Print|Rebuild|Run|Score|Search|Serve|Show|Test|"
    r"Train|Update|Write) "
)


def commands(group=cli, parent=None):
    """Yield the path, the command and its context of each command, groups included."""
    context = parent or click.Context(cli, info_name="retriever", **cli.context_settings)
    yield context.command_path, group, context
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        below = click.Context(command, parent=context, info_name=name)
        if isinstance(command, click.Group):
            yield from commands(command, below)
        else:
            yield below.command_path, command, below


def help_texts():
    """Return the places of each help text: of commands, options and settings by key."""
    places = {}

    def add(text, place):
        # The keys of --set are a list, and no sentence.
        text = re.sub(r" Keys: [^.]*\.", "", " ".join(text.split()))
        places.setdefault(text, place)

    for path, command, context in commands():
        for paragraph in re.split(r"\n\s*\n", command.help or ""):
            add(paragraph, path)
        for option in command.get_params(context):
            if isinstance(option, click.Option) and not option.hidden:
                add(option.help or "", f"{path} {option.opts[-1]}")
        for key, setting in other_settings(command).items():
            add(setting.description, f"{path} --set {key}")
    for setting in encoder_keys():
        add(setting.description, f"--model ::{setting.key}")
    return places


TEXTS = help_texts()


def sentences(text):
    """Return the sentences of a text with at least three words."""
    return [part for part in re.split(r"(?<=[.!?])\s+", text) if len(part.split()) > 2]


def test_sentences_of_help_texts_are_short():
    lengths = {
        (place, sentence): len(sentence.split())
        for text, place in TEXTS.items()
        for sentence in sentences(text)
    }
    assert len(lengths) > 400
    assert {key: length for key, length in lengths.items() if length > LONGEST} == {}
    assert sum(lengths.values()) / len(lengths) <= LONGEST_MEAN


def test_help_texts_use_no_private_dialect():
    faults = {place: text for text, place in TEXTS.items() if PRIVATE_DIALECT.search(text)}
    assert faults == {}


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("Encoder of the folder, of which all splits are merged.", "of which"),
        ("Run that the others are compared with.", "others"),
        ("Keep the better one.", "better one"),
        ("A second writer is refused.", "is refused"),
    ],
)
def test_private_dialect_is_found(text, phrase):
    found = PRIVATE_DIALECT.search(text)
    assert found is not None
    assert found[0] == phrase


def test_help_texts_end_with_a_full_stop():
    ends = {place: text for text, place in TEXTS.items() if not text.endswith((".", "...", ":"))}
    assert ends == {}


def test_summary_of_each_command_begins_with_an_imperative():
    summaries = [command.get_short_help_str(200) for _, command, _ in commands()]
    assert [text for text in summaries if not IMPERATIVE.match(text)] == []


def test_summary_of_each_command_fits_into_one_line():
    summaries = {
        path: command.get_short_help_str(200)
        for path, command, _ in commands()
        if path != "retriever"
    }
    assert {path: text for path, text in summaries.items() if len(text) > SUMMARY_COLUMNS} == {}
    context = click.Context(cli, info_name="retriever", terminal_width=80)
    rows = [line for line in cli.get_help(context).splitlines() if line.startswith("  ")]
    assert not [line for line in rows if line.endswith("...")]
    assert len(rows) > len(COMMANDS)
