"""Which column holds the questions: the one that was named, or the one whose name leaves no doubt."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from shared.errors import UsageError


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words for "question" in the languages of the files we know of; singular and plural.
_QUESTION_WORDS = words(
    """
    question questions vraag vragen frage fragen pregunta preguntas domanda domande pergunta
    perguntas quesito quesiti questão questões kysymys fråga frågor spørgsmål spørsmål pytanie
    pytania otázka otázky kérdés întrebare pitanje soru ερώτηση ερωτήσεις вопрос вопросы питання
    въпрос 質問 問題 问题 問 問い 질문 سؤال الأسئلة أسئلة السؤال שאלה שאלות प्रश्न सवाल คำถาม คําถาม
    pertanyaan swali
    """
) | {"câu hỏi"}
# Names that often, but not always, hold what is asked.
_ASKING_WORDS = words(
    """
    query queries prompt prompts text utterance sentence ask inquiry enquiry anfrage consulta
    requête zapytanie запрос クエリ 查询
    """
)
# With one of these, a name that contains "question" is about the question: its id, its language ...
_ABOUT = words(
    """
    id ids nr no num number key ref code type kind category categorie class group section topic
    tags tag count date time created updated language lang sprache langue author user_id by source
    url link title rank score length len hash status answer answers answered response is has reply
    hint notes index order level difficulty mark points domain
    """
)
# What a checklist or a tender asks for; taken only when no name says more.
_DEMANDS = words(
    """
    requirement requirements anforderung anforderungen exigence exigences requisito requisitos
    vereiste vereisten krav требование требования 要求 요구사항
    """
)
_CAMEL = re.compile(r"(?<=[a-z\d])(?=[A-Z])")
_GAPS = re.compile(r"[\W_]+")
_ENDS_AS_QUESTION = re.compile(r"[?？؟\u037e][\s\"'»”)\]]*$")
_LISTED = 40


@dataclass(frozen=True, slots=True)
class Choice:
    index: int  # 0-based position of the question column
    guessed: bool
    note: str | None  # a sentence for the report


def normal(name: str) -> str:
    """`name` folded for comparison: case, width, and any of space, underscore, dash, dot."""
    return _GAPS.sub(" ", unicodedata.normalize("NFKC", name).casefold()).strip()


def unique_names(header: Sequence[str]) -> list[str]:
    """`header` with empty names filled (`column_3`) and repeated ones numbered (`name`, `name_2`)."""
    taken = {name.strip() for name in header}
    result: list[str] = []
    for position, raw in enumerate(header, start=1):
        base = raw.strip() or f"column_{position}"
        name, count = base, 1
        while name in result or (name != raw.strip() and name in taken):
            count += 1
            name = f"{base}_{count}"
        result.append(name)
    return result


def is_question_word(name: str) -> bool:
    return normal(name) in _QUESTION_WORDS


def looks_like_question(text: str) -> bool:
    """Whether `text` is rather a question than the name of a column."""
    return _ENDS_AS_QUESTION.search(text) is not None


def choose(
    file: str,
    columns: Sequence[str],
    wanted: str | None,
    longest: str | None = None,
    header: Sequence[str] | None = None,
) -> Choice:
    """The question column among the unique names `columns`.

    `header` holds the names before they were made unique, so that two columns of one name are a tie.
    `longest` names the column with the longest texts; it is only suggested, never taken.
    Raises UsageError, listing the columns, when the wanted one is not there or no guess is safe.
    """
    if wanted is not None:
        return Choice(_named(file, columns, wanted), guessed=False, note=None)
    if len(columns) == 1:
        if is_question_word(columns[0]):
            return Choice(0, guessed=False, note=None)
        return Choice(0, guessed=True, note=f'The only column, "{columns[0]}", was taken as the questions.')
    for tier in TIERS:
        found = [position for position, name in enumerate(header or columns) if tier(name)]
        if len(found) == 1:
            name = columns[found[0]]
            return Choice(found[0], guessed=True, note=f'The question column was guessed: "{name}".')
        if found:
            several = " and ".join(f'"{columns[position]}"' for position in found[:5])
            remedy = _remedy(columns, columns[found[0]])
            raise UsageError(f"{file}: several columns could hold the questions: {several}. {remedy}")
    hint = f' The longest texts are in "{longest}".' if longest else ""
    remedy = _remedy(columns, longest or columns[0])
    raise UsageError(f"{file}: no column name says that it holds the questions.{hint} {remedy}")


def _compound(name: str) -> bool:
    """question_text, user question, questionEN; but not question_id or questionLanguage."""
    parts = set(normal(_CAMEL.sub(" ", name)).split())
    return bool(parts & _QUESTION_WORDS) and not parts & _ABOUT


def _asking(name: str) -> bool:
    return normal(name) in _ASKING_WORDS


def _demanding(name: str) -> bool:
    """requirement, Detailed requirement; but not Requirement ID."""
    parts = set(normal(_CAMEL.sub(" ", name)).split())
    return bool(parts & _DEMANDS) and not parts & _ABOUT


# From the name that leaves no doubt to the one that is taken for want of a better.
TIERS = (is_question_word, _compound, _asking, _demanding)


def evidence(name: str) -> int | None:
    """The place of the first of TIERS that holds for `name`; None: the name says nothing."""
    return next((place for place, tier in enumerate(TIERS) if tier(name)), None)


def _named(file: str, columns: Sequence[str], wanted: str) -> int:
    if wanted in columns:
        return columns.index(wanted)
    folded = wanted.strip().casefold()
    found = [position for position, name in enumerate(columns) if name.strip().casefold() == folded]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(
            f'{file}: "{wanted}" fits several columns; write it exactly, or its number. {_listing(columns)}'
        )
    if folded.isascii() and folded.isdigit() and 1 <= int(folded[:9]) <= len(columns):
        return int(folded[:9]) - 1
    raise UsageError(f'{file}: there is no column "{wanted}". {_listing(columns)}')


def _listing(columns: Sequence[str]) -> str:
    shown = ", ".join(f'{position} "{name}"' for position, name in enumerate(columns[:_LISTED], start=1))
    more = f" and {len(columns) - _LISTED} more" if len(columns) > _LISTED else ""
    return f"The columns are: {shown}{more}."


def _remedy(columns: Sequence[str], example: str) -> str:
    return f'{_listing(columns)} Say which with --column NAME (or its number), such as --column "{example}".'
