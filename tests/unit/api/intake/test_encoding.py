"""Encodings are certain, said to be a guess, or refused; never half wrong."""

from pathlib import Path

import pytest

from api.intake import encoding as encoding_module
from api.intake import open_questions
from api.intake.encoding import detect
from shared.errors import IntakeError

TEXTS = {
    "de": "Wie viele Urlaubstage habe ich in diesem Jahr für Über­stunden? Müssen sie – „genehmigt“ – werden? Größe?",
    "ru": "Сколько дней отпуска я могу взять в этом году? Как подать заявление на отпуск? Где отдел кадров?",
    "zh": "我今年可以休多少天假？如何提交休假申请？人事部门在哪里？公司报销流程是什么？一年几次？",
    "el": "Πόσες ημέρες άδειας δικαιούμαι φέτος; Πώς υποβάλλω αίτηση άδειας; Πού βρίσκεται το τμήμα;",
    "ja": "今年は何日休暇を取ることができますか？休暇の申請はどうすればいいですか？人事部はどこですか？",
}


def written(folder: Path, text: str, codec: str, name: str = "q.txt") -> Path:
    path = folder / name
    path.write_bytes(text.encode(codec))
    return path


@pytest.mark.parametrize("language", TEXTS)
@pytest.mark.parametrize("times", [1, 3000])
@pytest.mark.parametrize(
    ("codec", "mark", "name"),
    [
        ("utf-8", "", "utf-8"),
        ("utf-8", "\ufeff", "utf-8-sig"),
        ("utf-16-le", "\ufeff", "utf-16-le"),
        ("utf-16-be", "\ufeff", "utf-16-be"),
        ("utf-16-le", "", "utf-16-le"),
        ("utf-16-be", "", "utf-16-be"),
        ("utf-32-le", "\ufeff", "utf-32-le"),
    ],
)
def test_unicode(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    language: str,
    times: int,
    codec: str,
    mark: str,
    name: str,
) -> None:
    monkeypatch.setattr(encoding_module, "BLOCK", 1021)  # so that characters are cut at the ends of blocks
    path = written(tmp_path, mark + f"{TEXTS[language]}\n" * times, codec)
    file = open_questions(path)
    assert file.report.encoding == name
    assert [row.question for row in file.rows()] == [TEXTS[language]] * times


@pytest.mark.parametrize(
    ("language", "codec", "name"),
    [
        ("de", "cp1252", "cp1252"),
        ("ru", "cp1251", "cp1251"),
        ("ru", "koi8_r", "koi8_r"),
        ("el", "cp1253", "cp1253"),
        ("zh", "gb18030", "gb18030"),
        ("ja", "shift_jis", "cp932"),
    ],
)
def test_older_encodings_are_guessed_and_the_report_says_so(
    tmp_path: Path, language: str, codec: str, name: str
) -> None:
    file = open_questions(written(tmp_path, f"{TEXTS[language]}\n" * 3, codec))
    assert file.report.encoding == name
    assert any(name in note and "not UTF-8" in note for note in file.report.notes)
    assert [row.question for row in file.rows()] == [TEXTS[language]] * 3


def test_a_cp1252_byte_far_into_the_file_decides_for_all_of_it(tmp_path: Path) -> None:
    path = written(
        tmp_path, "question,n\n" + "plain,1\n" * 200_000 + "Où est le café à Genève ?,2\n", "cp1252", "q.csv"
    )
    file = open_questions(path)
    assert file.report.encoding == "cp1252"
    *_, last = file.rows()
    assert (last.number, last.question) == (200_001, "Où est le café à Genève ?")


@pytest.mark.parametrize(
    "text", ["Jak złożyć wniosek o urlop? Który dział się tym zajmuje? Ile można wziąć?"]
)
def test_what_cp1252_cannot_be_is_not_read_as_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(IntakeError, match="Save it again as UTF-8"):
        detect(written(tmp_path, text + "\n", "cp1250"))


def test_utf8_with_a_foreign_line_is_refused_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "q.csv"
    path.write_bytes("id,question\n1,Größe?\n2,Maß?\n".encode() + "3,Länge?\n".encode("cp1252"))
    with pytest.raises(IntakeError, match=r"q\.csv: line 4: .*save it as UTF-8"):
        open_questions(path)


def test_a_file_cut_within_a_character_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "q.txt"
    path.write_bytes("Größe?\nMaß?\nWie weiß".encode()[:-1])
    with pytest.raises(IntakeError, match="line 3"):
        open_questions(path)
    path.write_bytes("\ufeffGröße?\nMaß?".encode("utf-16-le")[:-1])
    with pytest.raises(IntakeError, match=r"line 2.*cut off"):
        open_questions(path)


def test_a_second_byte_order_mark_is_not_part_of_the_header(tmp_path: Path) -> None:
    file = open_questions(written(tmp_path, "\ufeff\ufeffquestion,id\nWhy?,1\n", "utf-8", "q.csv"))
    assert file.report.columns == ["question", "id"]


def test_a_few_nuls_do_not_make_utf16(tmp_path: Path) -> None:
    assert detect(written(tmp_path, "question\nWhy\0 is it?\nÜber\0?\n", "utf-8")).name == "utf-8"
