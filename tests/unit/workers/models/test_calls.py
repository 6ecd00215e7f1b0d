"""What is believed of the numbers that a server tells."""

from typing import Any

import pytest

from workers.models.calls import CallRecord, UnusableOutput, perform_recorded, told_usage
from workers.models.roles import CallResult, CallSpec

SPEC = CallSpec("answer_generator", "openai", "gpt-4.1-mini", "v", {"human": "q"})


@pytest.mark.parametrize(
    ("told", "believed"),
    [
        ((700, 100), (700, 100)),
        ((700, 0), (700, 0)),
        ((700.0, None), (700, None)),
        ((None, None), (None, None)),
        ((-5, 100), (None, 100)),
        ((10**19, 2**63), (None, None)),
        (("abc", 1e99), (None, None)),
        ((float("nan"), float("inf")), (None, None)),
        ((True, 2.5), (None, None)),
        ((0, 0), (None, None)),  # what LangChain makes of `"usage": {}`
    ],
)
def test_only_numbers_that_can_be_are_believed(told: Any, believed: Any) -> None:
    assert told_usage(*told) == believed


def test_a_record_holds_what_is_believed_also_of_a_failed_call() -> None:
    records: list[CallRecord] = []
    perform_recorded(SPEC, lambda: CallResult("answer", -5, 10**30), records.append)

    def fails() -> CallResult:
        raise UnusableOutput("prose", where="openai", input_tokens=-5, output_tokens=100)

    with pytest.raises(UnusableOutput):
        perform_recorded(SPEC, fails, records.append)
    assert [(one.input_tokens, one.output_tokens) for one in records] == [(None, None), (None, 100)]
    assert records[0].cost_usd is None
    assert records[1].cost_usd is not None and records[1].cost_usd > 0
