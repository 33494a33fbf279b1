"""Write a small folder of a household: notes, a lease, mail, a budget, a manual, a script.

    python examples/sample_folder.py home

The pages of the documentation search this folder. All texts are made up. The times of the files are
fixed, so that what depends on them is the same everywhere.
"""

from __future__ import annotations

import argparse
import os
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from io import BytesIO
from pathlib import Path

NOTES = {
    "notes/router.md": """\
# Router

The router stands behind the bookshelf. Its address is 192.168.1.1, user `admin`.

## Reset
Hold the small button on the back for ten seconds, until all lights blink. The password is then
the one on the sticker. Error E-4711 means that the cable to the wall is loose.

## Guests
Guests have a network of their own, `garden`. It is off at night.
""",
    "notes/garden.md": """\
---
title: Garden
tags: [garden, bees]
date: 2026-03-14
---
## Spring
Prune the apple trees before the buds open, in the first warm week of March. Sow peas in April.

## Bees
The first honey is ready at the end of May. A hive that hums loudly in the evening is about to
swarm: give it more room.
""",
    "notes/meetings/2026-02-house.md": """\
---
title: House meeting
tags: [house]
date: 2026-02-03
---
The roof will be repaired in August. The costs are shared by floor area. Mrs. Okafor keeps the key
to the cellar.
""",
    "notes/meetings/2025-06-house.md": """\
---
title: House meeting
tags: [house]
date: 2025-06-10
---
The roof leaks above the stairs. Two offers were compared. The key to the cellar is with Mr. Lind.
""",
    "recipes/bread.md": """\
# Rye bread

Mix rye flour, water and sourdough in the evening. Let the dough rise overnight. Bake it for an
hour at 220 degrees.

## If it does not rise
The sourdough was too cold. Put the bowl near the oven for two more hours.
""",
    "recipes/suppe.md": """\
# Linsensuppe

Die Linsen müssen nicht eingeweicht werden. Mit Karotten und Lauch eine halbe Stunde kochen, zum
Schluss einen Schuss Essig dazugeben.
""",
}
LEASE = (
    (
        "Lease",
        "The flat has three rooms and a cellar. The rent is 940 a month and is paid by the third "
        "working day. The deposit is two rents.",
    ),
    (
        "Notice",
        "The tenant may end the lease with three months' notice, in writing. Small repairs up to "
        "80 are paid by the tenant. Pets other than cats need the landlord's consent.",
    ),
)
POLICY = (
    (
        "Household insurance",
        "Covered are fire, burst pipes, burglary and storm. Broken windows are paid up to 1,500. "
        "Bicycles are covered at night if they are locked.",
    ),
)
BUDGET = (
    ("Month", "Rent", "Electricity", "Food"),
    ("January", 940, 71, 388),
    ("February", 940, 69, 402),
    ("March", 940, 55, 431),
)
MANUAL = """\
<!doctype html>
<html lang="en"><head><title>Washing machine</title>
<meta name="author" content="Northwind"><meta name="date" content="2024-11-05"></head>
<body><nav><a href="/">Home</a> <a href="/help">Help</a></nav><main>
<h1>Washing machine</h1>
<h2>Filter</h2><p>Clean the filter every two months. Put a bowl under it first: a liter of water
comes out.</p>
<h2>Error codes</h2>
<table><tr><th>Code</th><th>Meaning</th></tr>
<tr><td>F05</td><td>the filter is clogged</td></tr>
<tr><td>F11</td><td>the door is open</td></tr></table>
</main></body></html>
"""
SCRIPT = '''\
"""Copies the photos to the disk in the cellar."""

import shutil
from pathlib import Path


class PhotoArchive:
    """The folder on the disk, with a folder a year."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def copy_new_photos(self, camera: Path) -> int:
        """Copy the photos that the archive does not have yet."""
        copied = 0
        for photo in sorted(camera.glob("*.jpg")):
            target = self.root / photo.name[:4] / photo.name
            if not target.exists():
                shutil.copy2(photo, target)
                copied += 1
        return copied
'''
# Day of the last change of each file; others have the first.
DAYS = {"": "2025-11-02", "notes/router.md": "2026-04-01", "budget.xlsx": "2026-04-02"}


def main() -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for path, content in sample_files().items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        day = datetime.fromisoformat(DAYS.get(path, DAYS[""])).replace(tzinfo=UTC)
        os.utime(target, (day.timestamp(), day.timestamp()))


def sample_files() -> dict[str, bytes]:
    """Return the content of each file by its path."""
    return {
        **{path: text.encode() for path, text in NOTES.items()},
        "lease.pdf": make_pdf(LEASE),
        "mail/insurance.eml": make_mail(),
        "budget.xlsx": make_workbook(BUDGET),
        "manuals/washing-machine.html": MANUAL.encode(),
        "scripts/photos.py": SCRIPT.encode(),
    }


def make_pdf(pages: Sequence[tuple[str, str]]) -> bytes:
    """Return a PDF with a page for each heading and text."""
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        font,
    ]
    for number, (heading, text) in enumerate(pages):
        drawing = draw_page(heading, text)
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> >> >>" % (5 + 2 * number)
        )
        objects.append(b"<< /Length %d >>\nstream\n%b\nendstream" % (len(drawing), drawing))
    return join_pdf(objects)


def draw_page(heading: str, text: str) -> bytes:
    """Return the drawing of a page: its heading, and its text in lines of some 80 characters."""
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) > 80:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    shown = [f"({heading}) Tj 0 -30 Td", *(f"({line}) Tj 0 -16 Td" for line in lines)]
    return f"BT /F1 12 Tf 60 780 Td {' '.join(shown)} ET".encode()


def join_pdf(objects: Sequence[bytes]) -> bytes:
    """Return the file of some objects, with its table of their offsets."""
    content = b"%PDF-1.4\n"
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(content))
        content += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    return content + (
        b"xref\n0 %d\n0000000000 65535 f \n%btrailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n"
        b"%%%%EOF\n" % (len(objects) + 1, table, len(objects) + 1, len(content))
    )


def make_mail() -> bytes:
    """Return a mail with a PDF attached."""
    mail = EmailMessage(policy=SMTP)
    mail["From"] = "Iris Vogel <iris@insurance.example>"
    mail["To"] = "home@example.org"
    mail["Subject"] = "Your household insurance"
    mail["Date"] = "Mon, 12 Jan 2026 09:30:00 +0000"
    mail["Message-ID"] = "<policy-1@insurance.example>"
    mail.set_content(
        "Dear customer,\n\nyour policy is attached. Please report damage within a week, by phone "
        "or mail.\n\nIris Vogel\n"
    )
    mail.add_attachment(
        make_pdf(POLICY), maintype="application", subtype="pdf", filename="policy.pdf"
    )
    mail.set_boundary("=====sample=====")
    return bytes(mail)


def make_workbook(rows: Sequence[Sequence[str | int]]) -> bytes:
    """Return a workbook with one sheet."""
    namespace = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    sheet = "".join(f"<row>{''.join(map(cell_xml, row))}</row>" for row in rows)
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Default Extension="xml" '
        'ContentType="application/xml"/><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{namespace}" xmlns:r="{office}"><sheets>'
        '<sheet name="2026" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships">'
        f'<Relationship Id="r1" Type="{office}/worksheet" Target="worksheets/sheet1.xml"/>'
        "</Relationships>",
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{namespace}"><sheetData>{sheet}'
        "</sheetData></worksheet>",
    }
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as workbook:
        for name, text in parts.items():
            workbook.writestr(zipfile.ZipInfo(name), text)
    return buffer.getvalue()


def cell_xml(value: str | int) -> str:
    """Return the XML of a cell."""
    if isinstance(value, str):
        return f'<c t="inlineStr"><is><t>{value}</t></is></c>'
    return f"<c><v>{value}</v></c>"


if __name__ == "__main__":
    main()
