"""Texts in 22 encodings and damaged UTF-8: how many are read right, wrong, or refused.

    python benchmarks/encodings.py FOLDER [--texts 10]

FOLDER has a text file in UTF-8 for each language, named by its code: cs, de, el, es, fr, hu, it,
ja, ko, pl, ru, sv, th, tr, uk, zh. Missing ones are left out. Texts of several lengths
are cut from it at line ends, written in each encoding and read as a file without an encoding is.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from retriever.documents.decoding import decode

LANGUAGES = {
    "cp1252": "de fr es it sv",
    "iso8859-15": "de fr es it sv",
    "mac-roman": "de fr es",
    "cp850": "de fr es",
    "cp1250": "cs pl hu",
    "iso8859-2": "cs pl hu",
    "cp1251": "ru uk",
    "koi8-r": "ru",
    "koi8-u": "uk",
    "iso8859-5": "ru",
    "cp866": "ru",
    "mac-cyrillic": "ru",
    "cp1253": "el",
    "iso8859-7": "el",
    "cp1254": "tr",
    "cp874": "th",
    "cp932": "ja",
    "euc_jp": "ja",
    "cp949": "ko",
    "gb18030": "zh",
    "utf-16-le": "de ru ja",
    "utf-16-be": "fr el zh",
}
LENGTHS = (30, 150, 600, 3000)
# Of the bytes above 127, those that are damaged.
DAMAGES = (0.005, 0.02, 0.05, 0.2, 0.4)


def main() -> None:
    """Print a table for each of the two."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--texts", type=int, default=10, help="of each encoding and length")
    arguments = parser.parse_args()
    lines = {
        path.stem: path.read_text(encoding="utf-8").splitlines()
        for path in sorted(arguments.folder.glob("*.txt"))
    }
    chance = random.Random(0)
    print("| characters | right | wrong | refused | wrong encodings |\n|---|---|---|---|---|")
    for length in LENGTHS:
        outcomes = {"right": 0, "wrong": 0, "refused": 0}
        confusions: set[str] = set()
        for encoding, languages in LANGUAGES.items():
            present = [language for language in languages.split() if language in lines]
            for number in range(arguments.texts if present else 0):
                text = cut(lines[present[number % len(present)]], length, chance)
                content = text.encode(encoding, "ignore")
                outcome, name = read(content, content.decode(encoding))
                outcomes[outcome] += 1
                if outcome == "wrong":
                    confusions.add(f"{encoding} as {name}")
        counts = " | ".join(map(str, outcomes.values()))
        print(f"| {length} | {counts} | {', '.join(sorted(confusions))} |")
    print("\n| damaged bytes | replaced | refused | in another encoding |\n|---|---|---|---|")
    for damage in DAMAGES:
        outcomes = {"utf-8": 0, "refused": 0, "other": 0}
        for choices in lines.values():
            for _ in range(arguments.texts):
                content = damaged(cut(choices, 1500, chance).encode(), damage, chance)
                outcome, name = read(content, "")
                key = name if name in outcomes else "refused" if outcome == "refused" else "other"
                outcomes[key] += 1
        print(f"| {damage:.1%} | {' | '.join(map(str, outcomes.values()))} |")


def cut(lines: list[str], length: int, chance: random.Random) -> str:
    """Lines from a random place on, cut at a length, with letters that are not ASCII."""
    while True:
        start = chance.randrange(len(lines))
        text = "\n".join(lines[start : start + length])[:length]
        if sum(not character.isascii() for character in text) > 1:
            return text


def damaged(content: bytes, share: float, chance: random.Random) -> bytes:
    """Bytes of which a share of those above 127 are left out or changed."""
    parts = bytearray()
    for byte in content:
        if byte < 128 or chance.random() >= share:
            parts.append(byte)
        elif chance.random() < 0.5:
            parts.append(chance.randrange(128, 256))
    return bytes(parts)


def read(content: bytes, text: str) -> tuple[str, str]:
    """Return whether bytes are read right, wrong or refused, and the encoding."""
    try:
        decoded = decode(content)
    except UnicodeDecodeError:
        return "refused", ""
    if "\0" in decoded.text:
        return "refused", ""
    return "right" if decoded.text == text else "wrong", decoded.encoding


if __name__ == "__main__":
    main()
