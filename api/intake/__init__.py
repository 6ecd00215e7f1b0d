"""Files of questions, read as people hand them over.

`open_questions` looks at the file (encoding, delimiter, question column), and says how it understood it;
`QuestionFile.rows()` then streams the rows, in constant memory.

What is decided where it is not obvious:
* A column is guessed by its name only. `text` alone is taken; `req_description` is not: the error then names
  the column with the longest texts as the likely one, and asks for --column.
* A .csv of one column without a header is recognised by a first line that ends as a question. A first line
  that is neither that nor a short name is asked about.
* Blank lines of .csv and .txt are empty rows, so that row numbers agree with a spreadsheet or an editor;
  blank lines of .jsonl are skipped, for there is no row in them.
* A sheet is chosen by its header's names, and a header by its names and width; blank rows of a sheet are
  skipped without renumbering the others. Two sheets that could be meant are asked about.
* A .txt is one question a line, unless it is evidently a table (Excel's "Unicode text").
"""

from api.intake.model import OBJECT_FORMATS, InputRow, IntakeReport, QuestionFile
from api.intake.opening import open_questions

__all__ = ["OBJECT_FORMATS", "InputRow", "IntakeReport", "QuestionFile", "open_questions"]
