"""`cragline submit --dry-run`: what was found in the file, and nothing stored."""

from typing import TYPE_CHECKING

from rich.console import Console

from api.cli.output import print_json
from shared.clean import counted, one_line

if TYPE_CHECKING:
    from api.intake import QuestionFile


def show(questions: "QuestionFile", console: Console, *, json: bool) -> None:
    """Prints the preview; with `json`, one JSON object. Raises IntakeError for a row that cannot be read."""
    from api.intake.preview import preview

    found = preview(questions)
    if json:
        print_json(found)
        return
    lines = [describe(questions), *questions.report.notes]
    lines.append(
        f"{counted(found['rows'], 'row')}: {counted(found['questions'], 'question')}, "
        f"{found['empty_rows']} empty, {found['duplicate_rows']} repeated, {found['rows_with_notes']} with notes."
    )
    lines += [f"  row {row['row']}: {one_line(row['question'], 100)}" for row in found["first"]]
    lines.append("Nothing was submitted (--dry-run).")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def describe(questions: "QuestionFile") -> str:
    """One line on how the file was understood."""
    report = questions.report
    form = f"{report.format}, {report.encoding}" if report.sheet is None else f'xlsx, sheet "{report.sheet}"'
    return f"{report.file}: {form}, questions in column {report.question_column!r}."
