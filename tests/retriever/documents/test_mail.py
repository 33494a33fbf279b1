"""Mail as it is met: alternatives, messages within messages, damage, calendars and mailboxes."""

from __future__ import annotations

import email
import io
import time
from base64 import b64encode, encodebytes
from email import policy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever import SourceError
from retriever.documents.kinds.mail import is_mail, is_mailbox, messages, read_mail

pytest.importorskip("lxml")

HEAD = (
    "From: Ruth Ahl <ruth@example.org>\r\nSubject: Timetable\r\n"
    "Date: Wed, 12 Jun 2024 08:30:00 +0000\r\n"
)
LABEL = "2024-06-12 Ruth Ahl: Timetable"
INNER = (
    "From: Otto <otto@example.org>\r\nSubject: Ferry\r\nDate: Tue, 11 Jun 2024 07:00:00 +0000\r\n"
    "\r\nThe ferry leaves the pier at six.\r\n"
)
FERRY = "Subject: Ferry\nFrom: Otto <otto@example.org>\nDate: 2024-06-11T07:00:00"
FERRY_TEXT = f"{FERRY}\n\nThe ferry leaves the pier at six."
FERRY_LABEL = "2024-06-11 Otto: Ferry"


def part(text: str, kind: str = "text/plain; charset=utf-8", more: str = "") -> str:
    return f"Content-Type: {kind}\r\n{more}\r\n{text}"


def page(text: str) -> str:
    return part(f"<html><head><style>p {{ color: red }}</style></head><p>{text}</p>", "text/html")


def multipart(kind: str, *parts: str, boundary: str = "-=b") -> str:
    lines = "".join(f"--{boundary}\r\n{part}\r\n" for part in parts)
    return f'Content-Type: multipart/{kind}; boundary="{boundary}"\r\n\r\n{lines}--{boundary}--\r\n'


def text_of(message: str) -> str:
    return read_mail(HEAD.encode() + message.encode()).text


ROUTE = "The night train to Kiruna stops in Gävle at ten, and the dining car opens at seven."
STUBS = [
    "View this message in your browser: https://example.org/v/1?u=2",
    "https://example.org/a\r\nhttps://example.org/b?c=the+night+train+to+kiruna",
    "Ihr Programm zeigt kein HTML an.",
    "The night train to Kiruna ...\r\nRead more: https://example.org/train",
    "[image: logo]",
]


@pytest.mark.parametrize("stub", STUBS)
def test_the_page_is_read_where_the_plain_text_is_a_stub(stub):
    for parts in ((part(stub), page(ROUTE)), (page(ROUTE), part(stub))):
        assert text_of(multipart("alternative", *parts)) == ROUTE
    related = multipart("related", page(ROUTE), part("x", "image/png"), boundary="rel")
    assert text_of(multipart("alternative", part(stub), related)) == ROUTE


def test_mail_stub_in_script_without_spaces_is_recognized():
    page_text = "夜班火车停靠耶夫勒站，餐车七点开门，请提前预订座位。"
    assert text_of(multipart("alternative", part("请在浏览器中打开"), page(page_text))) == page_text


def test_a_complete_plain_text_is_read_whatever_the_markup():
    marked = "".join(
        f"<table class=layout><tr><td><b>{word}</b></td></tr></table>" for word in ROUTE.split()
    )
    assert text_of(multipart("alternative", part(ROUTE), page(marked))) == ROUTE
    footer = "Unsubscribe here."
    assert text_of(multipart("alternative", part(ROUTE), page(f"{ROUTE}<p>{footer}"))) == ROUTE


def test_mail_alternatives_with_different_texts_are_both_read():
    plain = " ".join(f"ord{number}" for number in range(80))
    other = " ".join(f"word{number}" for number in range(80))
    assert text_of(multipart("alternative", part(plain), page(other))) == f"{plain}\n\n{other}"


@pytest.mark.parametrize(
    "carrier",
    [
        part(INNER, "message/rfc822"),
        part(INNER, 'message/rfc822; name="f.eml"', "Content-Disposition: attachment\r\n"),
        part(
            INNER, "application/octet-stream", "Content-Disposition: attachment; filename=f.EML\r\n"
        ),
        part(
            encodebytes(INNER.encode()).decode(),
            "message/rfc822",
            "Content-Transfer-Encoding: base64\r\n",
        ),
        part(f"From otto Tue Jun 11 07:00:00 2024\r\n{INNER}", "message/rfc822"),
        multipart("digest", f"\r\n{INNER}", boundary="digest"),
        multipart("digest", INNER, boundary="digest"),
    ],
)
def test_a_message_within_a_message_is_read_with_its_subject_and_a_mark(carrier):
    message = multipart("mixed", part("See below."), carrier, part("Regards"))
    parsed = read_mail(HEAD.encode() + message.encode())
    assert parsed.text == f"See below.\n\n{FERRY_TEXT}\n\nRegards"
    assert [(mark.label, parsed.text[mark.offset :][:7]) for mark in parsed.outline] == [
        (LABEL, "See bel"),
        (FERRY_LABEL, "Subject"),
        (LABEL, "Regards"),
    ]
    assert (parsed.title, parsed.losses) == ("Timetable", ())


def test_a_bounce_has_the_text_of_its_report_and_of_the_message_that_came_back():
    report = "Reporting-MTA: dns; mx.example.org\r\n\r\nFinal-Recipient: rfc822; nobody@example.net"
    parts = (
        part("It was not delivered."),
        part(report, "message/delivery-status"),
        part("Subject: Anchor\r\nTo: nobody@example.net", "text/rfc822-headers"),
    )
    text = text_of(multipart("report", *parts))
    assert text == (
        f"It was not delivered.\n\n{report}\n\nSubject: Anchor\nTo: nobody@example.net"
    ).replace("\r\n", "\n")


def test_text_with_a_file_name_is_text_unless_it_is_an_attachment():
    message = multipart(
        "mixed",
        part("One.", "text/plain; name=one.txt"),
        part("Two.", "text/plain", "Content-Disposition: inline; filename=two.txt\r\n"),
        part("<p>Three.", 'text/html; name="three.htm"'),
        part("Four.", "text/plain", "Content-Disposition: attachment; filename=four.txt\r\n"),
        part("Five.", "text/plain", "Content-Disposition: attachment\r\n"),
        part("# Six", "text/markdown"),
        part("<bold>Seven</bold> << eight", "text/enriched"),
        part("x", "image/png; name=nine.png", "Content-Disposition: inline\r\n"),
    )
    parsed = read_mail(HEAD.encode() + message.encode())
    assert parsed.text == "One.\n\nTwo.\n\nThree.\n\n# Six\n\nSeven < eight"
    assert parsed.metadata["attachments"] == ["four.txt", "text/plain", "nine.png"]


MEETING = (
    "BEGIN:VCALENDAR\r\nBEGIN:VTIMEZONE\r\nDTSTART:16010101T000000\r\nEND:VTIMEZONE\r\n"
    "BEGIN:VEVENT\r\nSUMMARY:Harbor\\, walk\r\n and talk\r\nLOCATION:Quay 4\r\n"
    "DTSTART;TZID=Europe/Oslo:20240613T093000\r\nDTEND:20240613T103000Z\r\n"
    'ORGANIZER;CN="Ahl, Ruth":mailto:ruth@example.org\r\nDESCRIPTION:Bring\\nboots\r\n'
    "BEGIN:VALARM\r\nDESCRIPTION:Reminder\r\nEND:VALARM\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
)
TIMES = "Start: 2024-06-13 09:30 Europe/Oslo\nEnd: 2024-06-13 10:30 UTC"
PEOPLE = "Organizer: Ahl, Ruth ruth@example.org\nDescription: Bring\nboots"


def test_mail_calendar_adds_facts_missing_in_text():
    calendar = part(MEETING, "text/calendar; method=REQUEST")
    whole = f"Summary: Harbor, walkand talk\nLocation: Quay 4\n{TIMES}\n{PEOPLE}"
    assert text_of(calendar) == whole
    assert text_of(multipart("alternative", part(" "), calendar)) == whole
    text = "Harbor, walkand talk at quay 4, with boots to bring"
    assert text_of(multipart("alternative", part(text), page(text), calendar)) == (
        f"{text}\n\n{TIMES}\nOrganizer: Ahl, Ruth ruth@example.org"
    )


@pytest.mark.parametrize(
    "before",
    [
        "\r\n\r\n",
        " \t\n\n",
        "\ufeff",
        "\ufeff\r\n",
        ">From ruth Wed Jun 12 08:30:00 2024\n",
        "\nFrom ruth Wed Jun 12 08:30:00 2024\n>From otto\n",
        "+OK 210 octets\r\n",
    ],
)
def test_mail_lines_before_first_header_are_skipped(before):
    parsed = read_mail(f"{before}{HEAD}\r\nNet loft".encode())
    assert (parsed.title, parsed.text) == ("Timetable", "Net loft")


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_mail_text_without_blank_line_above_is_read_in_the_encoding_of_its_header(encoding):
    head = f"{HEAD}Content-Type: text/plain; charset={encoding}\r\n"
    content = f"{head}Grüße aus Gävle, ohne Leerzeile.\r\nBis bald!\r\n".encode(encoding)
    assert read_mail(content).text == "Grüße aus Gävle, ohne Leerzeile.\nBis bald!"


@pytest.mark.parametrize(
    "prose",
    ["", "\n\nOnly words.\n", "Note: only words\n", "From here on\nonly words\n", "Größe\n"],
)
def test_a_file_without_headers_of_a_mail_is_refused(prose):
    with pytest.raises(SourceError, match="no e-mail: it begins with no header"):
        read_mail(prose.encode())


def test_property_list_below_macos_mail_is_left_out():
    message = f"{HEAD}\r\nKelp for the garden.\r\n".encode()
    plist = b'<?xml version="1.0"?><plist version="1.0"><dict/></plist>\n'
    assert read_mail(b"%d\n" % len(message) + message + plist).text == "Kelp for the garden."


@pytest.mark.parametrize(
    "header", ["multipart/mixed", "multipart/mixed; boundary=other", "multipart/alternative"]
)
def test_a_multipart_whose_boundary_is_missing_keeps_its_text(header):
    lines = f"--real\r\n{part('First.')}\r\n--real--\r\n"
    assert text_of(f"Content-Type: {header}\r\n\r\n{lines}") == "First."
    assert text_of(f"Content-Type: {header}\r\n\r\nNo parts at all.") == "No parts at all."


def losses_of(message: str) -> tuple[str, list[str]]:
    parsed = read_mail(HEAD.encode() + message.encode())
    assert {loss.kind for loss in parsed.losses} <= {"parts"}
    return parsed.text, [loss.detail for loss in parsed.losses]


def test_mail_with_damaged_transfer_encoding_is_read_partly_and_noted():
    transfer = "Content-Transfer-Encoding: "
    text = "Reef, buoy and beacon. " * 12
    lines = encodebytes(text.encode()).decode()
    base64 = transfer + "base64\r\n\r\n"
    assert losses_of(base64 + lines) == (text.strip(), [])
    padded = "\r\n".join(b64encode(word.encode()).decode() for word in ("Ree", "f, b", "uoy"))
    assert losses_of(base64 + padded) == ("Reef, buoy", [])
    details = ["damaged base64 is read in part"]
    assert losses_of(f"{base64}{lines}\r\n--\r\nlist@example.org\r\n") == (text.strip(), details)
    assert losses_of(base64 + lines[:75]) == (text[:56].strip(), details)
    assert losses_of(f"{base64}{ROUTE}\r\n\0{ROUTE}") == (
        f"{ROUTE}\n{ROUTE}",
        ["text that is no base64, as it should be, is read as it stands"],
    )
    quoted = transfer + "quoted-printable\r\n\r\nG=C3=A4vle =ZZ tra= \r\nin="
    assert losses_of(quoted) == (
        "Gävle =ZZ train",
        ["damaged quoted-printable is read as it stands"],
    )
    uuencoded = transfer + "x-uuencode\r\n\r\nbegin 644 a\r\n#8G5O\r\n`\r\nend\r\n"
    assert losses_of(uuencoded) == ("buo", [])


def test_encrypted_and_opaque_parts_are_named():
    sealed = "application/pkcs7-mime; smime-type=enveloped-data; name=smime.p7m"
    assert losses_of(part("MIIB", sealed)) == (
        "",
        ["smime.p7m: its text is encrypted (S/MIME)"],
    )
    signed = sealed.replace("enveloped", "signed")
    assert losses_of(part("MIIB", signed)) == (
        "",
        ["smime.p7m: its text is within its signature (S/MIME)"],
    )
    armor = "-----BEGIN PGP MESSAGE-----\r\n\r\nhQEM\r\n-----END PGP MESSAGE-----"
    pgp = multipart(
        "encrypted",
        part("Version: 1", "application/pgp-encrypted"),
        part(armor, "application/octet-stream"),
    )
    assert losses_of(pgp) == ("", ["its text is encrypted (PGP)"])
    assert losses_of(f"\r\nAbove\r\n{armor}\r\nbelow") == (
        "Above\n\nbelow",
        ["its text is encrypted (PGP)"],
    )
    tnef = multipart("mixed", part("Above"), part("x", "application/ms-tnef; name=winmail.dat"))
    assert losses_of(tnef) == (
        "Above",
        ["winmail.dat: Outlook's own format (TNEF) is not read"],
    )


@pytest.mark.parametrize("carrier", ["multipart", "message"])
def test_parts_that_are_too_deep_or_too_many_are_named(carrier):
    message = part("bottom")
    for level in range(120):
        if carrier == "multipart":
            message = multipart("mixed", part(f"level {level}"), message, boundary=f"b{level}")
        else:
            message = f"Subject: level {level}\r\nContent-Type: message/rfc822\r\n\r\n{message}"
    text, losses = losses_of(message)
    assert "level 119" in text or carrier == "message"
    assert "level 90" in text
    assert "bottom" not in text
    assert [loss.partition(" (")[0] for loss in losses] == [
        "parts deeper than 50 levels are not read"
    ]
    flat = "Content-Type: multipart/mixed; boundary=b\r\n\r\n" + "--b\r\n\r\nx\r\n" * 12_000
    text, losses = losses_of(flat)
    assert (text.count("x"), losses) == (9_999, ["parts after the first 10,000 are not read"])


def test_mail_headers_in_nonstandard_encodings_are_decoded():
    subject = "Subject: =?gb2312?B?" + b64encode("朱镕基".encode("gbk")).decode() + "?=\r\n\r\nx"
    assert read_mail(subject.encode()).title == "朱镕基"
    assert read_mail("Subject: Grüße aus Gävle\r\n\r\nx".encode()).title == "Grüße aus Gävle"
    assert (
        read_mail("Subject: Grüße aus Gävle\r\n\r\nx".encode("cp1252")).title == "Grüße aus Gävle"
    )
    names = (
        "application/pdf; name*0*=utf-8''Fahr%C3%BC; name*1=bersicht.pdf",
        'application/pdf; name="=?utf-8?Q?Pl=C3=A4ne=2Epdf?="',
    )
    message = multipart("mixed", *(part("x", name) for name in names))
    parsed = read_mail(HEAD.encode() + message.encode())
    assert parsed.metadata["attachments"] == ["Fahrübersicht.pdf", "Pläne.pdf"]


def test_lines_of_a_text_that_begin_with_from_part_no_message_of_a_mailbox():
    box = (
        "From - Wed Jun 12 08:30:00 2024\nX-Mozilla-Status: 0001\nSubject: A\n\n"
        "Hi.\n\nFrom here on, north.\n\nFrom ruth@example.org Wed Jun 12 08:30:00 2024\n"
        "Subject: B\n\nTwo.\n\nFrom ruth\nSubject: C\n\n>From afar.\n"
    )
    for start in ("", "\ufeff", "\n\n"):
        read = [read_mail(part) for part in messages(io.BytesIO(f"{start}{box}".encode()), 1 << 20)]
        assert [(part.title, part.text) for part in read] == [
            ("A", "Hi.\n\nFrom here on, north."),
            ("B", "Two."),
            ("C", "From afar."),
        ]
    assert is_mailbox(box.encode())
    assert not is_mailbox(b"From here on\nthe road is: long\n")
    assert is_mail(HEAD.encode())
    assert not is_mail(b"Date: 2024\nStatus: open\n\nFrom: the desk\n")


ODD = ["<" * 900_000, "<style>" * 150_000, "<!--" * 200_000, "= " * 400_000, "a" * 900_000]
ODD += ["\n" * 900_000, 'X;A="b"' + ';A="b"' * 150_000, "--b \t" * 200_000]


@pytest.mark.parametrize("text", ODD, ids=lambda text: repr(text[:7]))
def test_any_mail_text_is_read_in_little_time(text):
    started = time.monotonic()
    text_of(multipart("alternative", part(text), part(text, "text/html")))
    text_of(part(f"BEGIN:VEVENT\r\n{text}", "text/calendar"))
    for encoding in ("base64", "quoted-printable", "x-uuencode"):
        text_of(part(text, "text/enriched", f"Content-Transfer-Encoding: {encoding}\r\n"))
    text_of(f"Content-Type: multipart/mixed; boundary=b\r\n\r\n{text}")
    text_of(text)
    assert time.monotonic() - started < 20


WORDS = st.text("abcdefg ", min_size=1, max_size=12).map(str.strip).filter(bool)
TREES = st.recursive(WORDS, lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=8)


@given(tree=st.lists(TREES, min_size=1, max_size=3))
def test_parts_within_parts_are_those_of_the_standard_library(tree):
    def written(node: object, path: str) -> str:
        if isinstance(node, str):
            return part(node)
        inner = [written(child, f"{path}{number}") for number, child in enumerate(node)]
        return multipart("mixed", *inner, boundary=f"b{path}")

    content = HEAD.encode() + written(tree, "0").encode()
    parsed = email.message_from_bytes(content, policy=policy.default)
    texts = [leaf.get_content().strip() for leaf in parsed.walk() if not leaf.is_multipart()]
    assert read_mail(content).text == "\n\n".join(texts)
