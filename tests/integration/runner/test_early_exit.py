"""Early exit: once enough documents are relevant, the rest of them is skipped, which is said and costs nothing."""

import pytest

from tests.integration.runner.bench import Bench
from tests.unit.workers.nodes.fakes import Script, document

RELEVANT = ("relevant", 0.9)
NOT = ("not_relevant", 0.1)


def bench_of(database, **verdicts) -> Bench:  # type: ignore[no-untyped-def]
    documents = [document(letter) for letter in verdicts]
    return Bench(database, Script(documents=documents, verdicts=verdicts))


def grading(bench: Bench, run: int) -> list[tuple[int, str]]:
    return [(row.branch, row.status) for row in bench.transitions(run) if row.node == "grade_document"]


@pytest.mark.parametrize("pipeline", ["crag", "self_rag", "adaptive"])
def test_the_rest_is_skipped_and_the_run_ends(database, pipeline: str) -> None:  # type: ignore[no-untyped-def]
    bench = bench_of(database, A=RELEVANT, B=NOT, C=RELEVANT, D=RELEVANT)
    run = (
        bench.start(pipeline, enough_relevant=2, rule="none_relevant")
        if pipeline == "crag"
        else bench.start(pipeline, enough_relevant=2)
    )
    bench.heal()  # one branch after the other
    assert grading(bench, run) == [(0, "succeeded"), (1, "succeeded"), (2, "succeeded"), (3, "skipped")]
    assert len(bench.rows("SELECT * FROM grades WHERE run_id = :r", r=run)) == 3
    assert bench.run_row(run).status == "answered"


def test_zero_grades_every_document(database) -> None:  # type: ignore[no-untyped-def]
    bench = bench_of(database, A=RELEVANT, B=RELEVANT, C=RELEVANT)
    run = bench.start("crag")
    bench.heal()
    assert {status for _, status in grading(bench, run)} == {"succeeded"}


def test_what_was_not_needed_was_not_asked(database) -> None:  # type: ignore[no-untyped-def]
    bench = bench_of(database, A=RELEVANT, B=RELEVANT, C=RELEVANT)
    run = bench.start("crag", enough_relevant=1)
    bench.heal()
    assert [status for _, status in grading(bench, run)] == ["succeeded", "skipped", "skipped"]
    stats = bench.one("SELECT attempts, skipped FROM node_stats WHERE node = 'grade_document'")
    assert (stats.attempts, stats.skipped) == (1, 2)
