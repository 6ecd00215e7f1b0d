"""The guess of the question column: taken when the name leaves no doubt, asked otherwise."""

import pytest

from api.intake.columns import choose, unique_names
from shared.errors import UsageError


@pytest.mark.parametrize(
    "name",
    [
        *(
            "question",
            "Question",
            "QUESTION ",
            "Questions",
            "question_text",
            "Question Text:",
            "user question",
        ),
        *("questionText", "query", "Prompt", "text", "Vraag", "Frage", "FRAGEN", "Pregunta", "domanda"),
        *("Pergunta", "вопрос", "質問", "问题", "질문", "سؤال", "Câu hỏi"),
    ],
)
def test_names_that_are_taken(name: str) -> None:
    choice = choose("f.csv", ["id", name, "category"], None)
    assert (choice.index, choice.guessed) == (1, True)
    assert choice.note == f'The question column was guessed: "{name}".'


@pytest.mark.parametrize(
    "columns",
    [
        ["id", "question_id", "category"],  # about a question, but none
        ["URL", "questionLanguage", "department"],
        ["chapter_id", "req_id", "req_description"],
        ["a", "b"],
    ],
)
def test_no_fitting_name_is_asked_about(columns: list[str]) -> None:
    with pytest.raises(UsageError, match="no column name") as caught:
        choose("f.csv", columns, None, longest=columns[-1])
    message = str(caught.value)
    assert all(f'{position} "{name}"' in message for position, name in enumerate(columns, start=1))
    assert f'--column "{columns[-1]}"' in message and f'longest texts are in "{columns[-1]}"' in message


@pytest.mark.parametrize(
    "columns", [["question", "Frage", "x"], ["query", "text"], ["question en", "question fr"]]
)
def test_a_tie_is_asked_about(columns: list[str]) -> None:
    with pytest.raises(UsageError, match="several columns could") as caught:
        choose("f.csv", columns, None)
    assert all(f'"{name}"' in str(caught.value) for name in columns)


def test_the_surer_name_wins() -> None:
    assert choose("f", ["text", "question", "question_id"], None).index == 1
    assert choose("f", ["query", "Question text", "Question language"], None).index == 1


def test_repeated_question_columns_tie_and_can_be_told_apart() -> None:
    names = unique_names(["question", "question"])
    assert names == ["question", "question_2"]
    with pytest.raises(UsageError, match="several"):
        choose("f", names, None, header=["question", "question"])
    assert choose("f", names, "question_2").index == 1


def test_the_only_column_is_taken() -> None:
    choice = choose("f", ["anything"], None)
    assert (choice.index, choice.guessed) == (0, True) and choice.note and "anything" in choice.note


@pytest.mark.parametrize(
    ("wanted", "index"), [("Text", 1), ("text", 2), ("TEXT ", None), ("id", 0), ("ID", 0), ("3", 2), ("1", 3)]
)
def test_a_named_column_exactly_then_by_case_then_by_number(wanted: str, index: int | None) -> None:
    columns = ["id", "Text", "text", "1"]
    if index is None:
        with pytest.raises(UsageError, match="fits several"):
            choose("f", columns, wanted)
    else:
        assert choose("f", columns, wanted).index == index


@pytest.mark.parametrize("wanted", ["nope", "0", "4", "-1", ""])
def test_a_named_column_that_is_not_there(wanted: str) -> None:
    with pytest.raises(UsageError, match=r'no column .*1 "a", 2 "b", 3 "c"') as caught:
        choose("f.csv", ["a", "b", "c"], wanted)
    assert caught.value.exit_code == 2
