"""`make demo`: the whole job on this machine, with the commands a person would type, each echoed.

State is kept in `.cragline/demo`, or where CRAGLINE_HOME says. Exit code 0: the batch has ended, every row
of the file is accounted for, and no run was lost. Whatever happens, the stack is stopped at the end.
"""

import csv
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from api.cli.output import cell
from shared.stack.state import running_stack

ROOT = Path(__file__).resolve().parent.parent
QUESTIONS = ROOT / "docs" / "demo-questions.csv"
OURS = ("CRAGLINE_", "OPENAI_", "TAVILY_", "FLOWER_")
ANSWER_WIDTH = 260  # characters of an answer in the table
QUERIES = {
    "The history is in Postgres. How did the batch end?": (
        "select rows, submitted, answered, gave_up, failed, empty_rows, duplicate_rows, rate_per_minute"
        " from batch_progress where batch_id = BATCH"
    ),
    "Where did the time go?": (
        "select node, attempts, failed, p50_ms, p95_ms from node_stats"
        " where batch_id = BATCH order by attempts * p50_ms desc"
    ),
    "How were the documents of one question (run RUN) graded?": (
        "select document_rank, label, round(score::numeric, 2) as score, title"
        " from grade_history where run_id = RUN order by document_rank"
    ),
}


class DemoFailed(Exception):
    """The demo did not come to its end; the message says why."""


class Demo:
    def __init__(self) -> None:
        home = Path(os.environ.get("CRAGLINE_HOME") or ROOT / ".cragline" / "demo").expanduser().absolute()
        home.mkdir(parents=True, exist_ok=True)
        self.home = home
        # The demo never costs money and touches nobody's servers: no key, no URL, whatever the caller has set.
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        self.env |= {"CRAGLINE_HOME": str(home), "CRAGLINE_MODELS": "local", "CRAGLINE_EMBEDDINGS": "local"}
        self.env.pop("PYTHONDONTWRITEBYTECODE", None)  # every start would compile LangGraph anew
        # A `.env` in the working directory would bring the keys back.
        self.where = home if (ROOT / ".env").exists() else ROOT
        terminal = Console()
        self.console = terminal if terminal.is_terminal else Console(width=120)
        self.up = False

    # -- the story -------------------------------------------------------------------------------------
    def run(self) -> None:
        self.say(
            f"Everything is kept in {self.env['CRAGLINE_HOME']}. No key is used, nothing leaves this machine."
        )
        if state := running_stack(self.home):
            raise DemoFailed(
                f"A stack is already running in {self.home} (pid {state.supervisor_pid}). Stop it with "
                f"`CRAGLINE_HOME={self.home} cragline down`, or set CRAGLINE_HOME to another folder."
            )
        self.up = True  # before it is: an interrupted start has to be stopped as well
        self.cragline("up", "-d")
        self.say("The project's own handbook is the knowledge, and these are the questions:")
        self.cragline("ingest", self.path("docs") + "/", "--include", "*.md", "-c", "handbook")
        words = ("-c", "handbook", "--set", "web_search=off", "--watch")
        self.cragline("submit", self.path("docs/demo-questions.csv"), *words)
        batch = int(self.asked("batch", "list", "--limit", "1", "--json")[0]["batch_id"])
        answers = self.show_answers(batch)
        answered = [row for row in answers if row["disposition"] == "answered"]
        if not answered:
            raise DemoFailed("Not a single question was answered.")
        # a question from the middle: its documents are graded both ways
        self.show_history(batch, answered[len(answered) // 3]["run_id"])
        self.check(batch, answers)

    def show_answers(self, batch: int) -> list[dict[str, Any]]:
        words = ("results", str(batch), "--json")
        self.echo(words)
        answers: list[dict[str, Any]] = self.asked(*words)
        made = Table(box=SIMPLE_HEAD, show_lines=True, header_style="bold", pad_edge=False)
        for column, ratio in (("row", 1), ("question", 8), ("answer", 18), ("sources", 9)):
            made.add_column(column, ratio=ratio, overflow="fold")
        for number, row in enumerate(answers, 1):
            said = row["answer"] or f"({row['disposition']}) {row['reason'] or row['error'] or ''}"
            titles = dict.fromkeys(source["title"] for source in row["sources"] or [])
            made.add_row(
                str(number),
                cell(row["question"], None),
                cell(said, ANSWER_WIDTH),
                cell("; ".join(titles), None),
            )
        self.console.print(made)
        return answers

    def show_history(self, batch: int, run: int) -> None:
        for title, query in QUERIES.items():
            self.say(title.replace("RUN", str(run)))
            self.cragline("sql", query.replace("BATCH", str(batch)).replace("RUN", str(run)))
        self.say("And the whole story of that run, node by node:")
        self.cragline("run", "show", str(run))

    def check(self, batch: int, answers: list[dict[str, Any]]) -> None:
        """Raises DemoFailed unless everything is accounted for."""
        with QUESTIONS.open(encoding="utf-8", newline="") as file:
            asked = [row["question"] for row in csv.DictReader(file)]
        if [row["question"] for row in answers] != asked:
            raise DemoFailed(
                f"{len(asked)} rows went in, but the {len(answers)} that came out are not the same."
            )
        odd = {row["disposition"] for row in answers} - {"answered", "gave_up", "empty"}
        if odd:
            raise DemoFailed(f"Some rows are {', '.join(sorted(odd))}.")
        deadline = time.monotonic() + 20  # the dispatcher writes the end of a batch at its next tick
        while self.asked("batch", "show", str(batch), "--json")["status"] != "ended":
            if time.monotonic() > deadline:
                raise DemoFailed("Every question has its disposition, but the batch has not ended.")
            time.sleep(0.5)
        if lost := self.asked("sql", "select * from lost_runs", "--json"):
            raise DemoFailed(f"{len(lost)} runs were lost: {lost[0]['what']}.")
        self.say(f"All {len(answers)} rows are accounted for, and no run was lost.")

    def stop(self) -> None:
        """Stops the stack; a second Ctrl-C does not keep it from stopping."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # inherited by the command too
        self.cragline("down")

    # -- how commands are run ----------------------------------------------------------------------------
    def path(self, name: str) -> str:
        return name if self.where == ROOT else str(ROOT / name)

    def say(self, text: str) -> None:
        self.console.print(f"\n{text}", style="bold cyan", markup=False, highlight=False, soft_wrap=True)

    def echo(self, words: tuple[str, ...]) -> None:
        line = f"$ cragline {shlex.join(words)}"
        self.console.print(f"\n{line}", style="bold", markup=False, highlight=False, soft_wrap=True)
        sys.stdout.flush()

    def cragline(self, *words: str) -> None:
        """Run a command on this terminal. Raises DemoFailed when it fails."""
        self.echo(words)
        self._run(words, None)

    def asked(self, *words: str) -> Any:
        """What a command prints with --json: the value, or the list of its lines for `results`."""
        out = self._run(words, subprocess.PIPE)
        return [json.loads(line) for line in out.splitlines()] if words[0] == "results" else json.loads(out)

    def _run(self, words: tuple[str, ...], stdout: int | None) -> str:
        command = [sys.executable, "-m", "api.cli.main", *words]
        process = subprocess.Popen(
            command, env=self.env | {"PYTHONPATH": str(ROOT)}, cwd=self.where, stdout=stdout, encoding="utf-8"
        )
        try:
            out, _ = process.communicate()
        except KeyboardInterrupt:
            self._end(process)
            raise
        if process.returncode:
            raise DemoFailed(f"`cragline {words[0]}` ended with exit code {process.returncode}.")
        return out or ""

    @staticmethod
    def _end(process: "subprocess.Popen[str]") -> None:
        """A Ctrl-C has reached the command too; a signal to this process alone has not."""
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            process.wait()


def main() -> int:
    def asked_to_stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, asked_to_stop)
    demo = Demo()
    code = 1
    try:
        try:
            demo.run()
            code = 0
        finally:
            if demo.up:
                demo.stop()
    except DemoFailed as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130
    demo.say(
        "Where to go next: docs/getting-started.md with your own files, docs/pipelines.md, docs/history.md."
    )
    return code


if __name__ == "__main__":
    sys.exit(main())
