"""Questions in scripts that MiniLM cannot read are answered by shared words, or not at all."""

import pytest

from tests.unit.workers.models.conftest import document
from workers.models.calls import MemoryRecorder
from workers.models.local import LocalAnswerGenerator
from workers.models.minilm import MiniLM, cosines
from workers.models.scripts import ENOUGH, is_readable, shared

KOREAN = (
    "크라니히 K200 크레인 저울의 보증 기간은 구매일로부터 36개월입니다. "
    "물이나 과부하로 인한 손상은 보증에 포함되지 않습니다. "
    "서울 지역 배송은 평균 3일이 걸리며, 제주도는 5일이 걸립니다. "
    "배송비는 3,000원입니다."
)


@pytest.mark.parametrize(
    ("question", "readable"),
    [
        ("Wie groß ist Łódź?", True),
        ("Hà Nội ở đâu?", True),
        ("Is Πάτρα big?", True),
        ("2 + 2?", True),
        ("K200의 보증 기간은?", False),
        ("Столица Монголии?", False),
        ("保修期有多长？", False),
        ("ما هي العاصمة؟", False),
    ],
)
def test_what_minilm_can_read(question: str, readable: bool) -> None:
    assert is_readable(question) is readable


@pytest.mark.parametrize(
    ("question", "text", "enough"),
    [
        ("물로 인한 손상도 보증되나요?", "물이나 과부하로 인한 손상은 보증에 포함되지 않습니다.", True),
        ("대통령은 누구입니까?", "배송비는 3,000원입니다.", False),  # nothing but the ending of a verb
        ("K200의 무게는?", "The K200 weighs 3 kg.", True),  # a name is read out of a Korean word
        ("保修期有多长？", "这款秤的保修期为自购买之日起36个月。", True),
        ("今天天气怎么样？", "退货须在收货后30天内提出。", False),
        ("Сколько стоит доставка?", "Стоимость доставки составляет 500 рублей.", True),  # another ending
        ("Кто президент России?", "Гарантия на весы составляет 36 месяцев.", False),
        ("…？", "anything", False),
    ],
)
def test_shared_words(question: str, text: str, enough: bool) -> None:
    assert (shared(question, text) >= ENOUGH) is enough


@pytest.mark.parametrize(
    ("question", "begins"),
    [
        ("제주도까지 배송은 며칠 걸리나요?", '"서울 지역 배송은'),
        ("K200의 보증 기간은 얼마입니까?", '"크라니히 K200'),
        ("배송비는 얼마입니까?", '"배송비는'),
        ("몽골의 수도는 어디입니까?", ""),  # the capital of Mongolia
        ("대통령은 누구입니까?", ""),
    ],
)
def test_a_korean_question_is_not_answered_from_just_any_korean_sentence(question: str, begins: str) -> None:
    generator = LocalAnswerGenerator(MiniLM(), 0.52, 1, MemoryRecorder())
    answer = generator.answer(question, [document(KOREAN)])
    assert answer.text.startswith(begins)
    if not begins:
        assert max(cosines(MiniLM(), question, ["배송비는 3,000원입니다."])) > 0.5, (
            "the cosine alone would do it"
        )
        assert (answer.text, answer.cited) == ("", ())
        assert answer.why_not.endswith("(none shares enough words with the question)")
