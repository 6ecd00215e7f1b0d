"""Workbooks for tests: made by openpyxl, or from bare XML where a program would not write such a thing."""

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openpyxl

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
Rows = Sequence[Sequence[Any]]


def made(path: Path, **sheets: Rows) -> Path:
    """A workbook with these sheets; "_" in a name stands for a blank."""
    book = openpyxl.Workbook()
    del book[book.sheetnames[0]]
    for name, rows in sheets.items():
        sheet = book.create_sheet(name.replace("_", " "))
        for row in rows:
            sheet.append(list(row))
    book.save(path)
    return path


def bare(
    path: Path, sheet: str, *, strings: str = "", styles: str = "", workbook_pr: str = "", **more: bytes
) -> Path:
    """A workbook of one sheet, whose parts are given as XML; `sheet` is all of its part, or its rows only."""
    if not sheet.lstrip().startswith("<?xml"):
        sheet = f'{_HEAD}<worksheet xmlns="{MAIN}"><sheetData>{sheet}</sheetData></worksheet>'
    parts = {
        "_rels/.rels": relations(("officeDocument", "xl/workbook.xml")),
        "xl/workbook.xml": f'{_HEAD}<workbook xmlns="{MAIN}" xmlns:r="{_OFFICE}">{workbook_pr}'
        '<sheets><sheet name="Sheet1" sheetId="1" r:id="rId1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": relations(
            ("worksheet", "worksheets/sheet1.xml"),
            *([("sharedStrings", "sharedStrings.xml")] if strings else []),
            *([("styles", "styles.xml")] if styles else []),
        ),
        "xl/worksheets/sheet1.xml": sheet,
        "xl/sharedStrings.xml": strings and f'{_HEAD}<sst xmlns="{MAIN}">{strings}</sst>',
        "xl/styles.xml": styles and f'{_HEAD}<styleSheet xmlns="{MAIN}">{styles}</styleSheet>',
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            if text:
                archive.writestr(name, text)
        for name, content in more.items():
            archive.writestr(name.replace("__", "/"), content)
    return path


def relations(*targets: tuple[str, str]) -> str:
    inner = "".join(
        f'<Relationship Id="rId{number}" Type="{_OFFICE}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, start=1)
    )
    return f'{_HEAD}<Relationships xmlns="{_RELATIONS}">{inner}</Relationships>'
