"""The roles without a key and without a network: cosines of MiniLM, keywords, and quoted sentences.

These cannot invent text, and they cannot reason. They go through the recorder like any paid call, so that
the history of a run looks the same whoever plays its roles.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shared.clean import one_line
from shared.statuses import GradeLabel
from workers.models.minilm import NAME, VectorSource, best_cosines, cosines
from workers.models.roles import CallRecorder, CallResult, CallSpec, Document, GeneratedAnswer, GradeVerdict
from workers.models.scripts import ENOUGH, is_readable, shared
from workers.models.sentences import sentences
from workers.models.words import content_set, content_words, words

NO_PROMPT = "none"
KEYWORDS = "local/keywords"
FROM_DOCUMENTS_ONLY = "local models answer from documents only"
_RELATIVE_CUT = 0.85  # further sentences must score at least this share of the best one
_MAX_QUERY_WORDS = 25
_MAX_SENTENCES = 400  # candidates looked at, over all documents
_QUESTION_MARKS = ("?", "？", "؟", '?"', "?)", "?”")
_HEADING_WORDS = 8  # a line of fewer words without a stop, a digit or a colon is taken for a heading
_SAYS_LITTLE = 3  # a sentence of so few words, all of them the question's, is no answer
_ENDS = re.compile(r"[.!…。！．｡।۔;][\"'”’»)\]」』）*_`]*$")
_BULLET = re.compile(r"^[-*•‣·–]\s+")
_LIST_MARK = re.compile(r"(?:[-*•‣·–]|\(?\w{1,3}[.)])\s")


def local_spec(role: str, model: str, request: dict[str, Any]) -> CallSpec:
    """The identity of a local call; local models have no prompts."""
    return CallSpec(role=role, provider="local", model=model, prompt_version=NO_PROMPT, request=request)


class LocalRelevanceGrader:
    """`roles.RelevanceGrader`: relevant when the cosine of question and text is at least `relevant_at`.

    A text that is too long for the model counts as its best window.
    """

    def __init__(self, embedder: VectorSource, relevant_at: float, recorder: CallRecorder) -> None:
        self._embedder = embedder
        self._relevant_at = relevant_at
        self._recorder = recorder

    def grade(self, question: str, document: Document) -> GradeVerdict:
        score = self.score(question, [document["text"]])[0]
        label = GradeLabel.RELEVANT if score >= self._relevant_at else GradeLabel.NOT_RELEVANT
        return GradeVerdict(label=label.value, score=score, model=NAME, prompt_version=NO_PROMPT)

    def score(self, question: str, texts: Sequence[str]) -> list[float]:
        """Cosine of each text in 0..1, same order. One recorded call for all of them."""
        if not texts:
            return []
        spec = local_spec("relevance_grader", NAME, {"question": question, "texts": list(texts)})

        def perform() -> CallResult:
            scores = best_cosines(self._embedder, question, texts)
            return CallResult([round(score, 6) for score in scores])

        return [float(score) for score in self._recorder.call(spec, perform)]


class LocalQueryRewriter:
    """`roles.QueryRewriter`: the content words of the question for the web, the question itself for the store,
    which is searched by meaning. With feedback, the next of a few variants that the feedback does not quote."""

    def __init__(self, recorder: CallRecorder) -> None:
        self._recorder = recorder

    def rewrite(
        self, question: str, target: str = "websearch", description: str = "", feedback: Sequence[str] = ()
    ) -> str:
        request: dict[str, Any] = {"question": question}
        if target != "websearch" or feedback:
            request |= {"target": target, "feedback": list(feedback)}
        spec = local_spec("query_rewriter", KEYWORDS, request)
        return str(self._recorder.call(spec, lambda: CallResult(_next_query(question, target, feedback))))


def quoted(query: str) -> str:
    """A query as feedback quotes it, so that it can be found there again."""
    return f'"{one_line(query, 200)}"'


def query_variants(question: str, target: str) -> list[str]:
    """Different queries for a question, the best first: whole, its words, its names and numbers, its longest
    words, either half of it."""
    keywords = keyword_query(question)
    kept = keywords.split(" ")
    first = [one_line(question, 390) or "?", keywords] if target == "vectorstore" else [keywords]
    names = [word for word in kept if word[:1].isupper() or any(map(str.isdigit, word))]
    longest = sorted(sorted(kept, key=len, reverse=True)[: max(len(kept) // 2, 2)], key=kept.index)
    half = (len(kept) + 1) // 2
    others = [names, longest, kept[half:], kept[:half]]
    variants = [*first, *(" ".join(group) for group in others if group)]
    if target != "vectorstore":
        variants.append(one_line(question, 390) or "?")
    return list(dict.fromkeys(variants))


def _next_query(question: str, target: str, feedback: Sequence[str]) -> str:
    """The first variant that no remark quotes. When all were tried, they are gone through again."""
    variants = query_variants(question, target)
    fresh = [query for query in variants if not any(quoted(query) in remark for remark in feedback)]
    if len(fresh) == len(variants):  # remarks of another kind; each still stands for a try
        return variants[len(feedback) % len(variants)]
    return fresh[0] if fresh else variants[len(feedback) % len(variants)]


def keyword_query(question: str) -> str:
    """Names, numbers and content words, each once, at most 25; the question itself when none is left."""
    seen: set[str] = set()
    kept: list[str] = []
    for word in content_words(question):
        if word.lower() not in seen:
            seen.add(word.lower())
            kept.append(word)
    return " ".join(kept[:_MAX_QUERY_WORDS]) or one_line(question, 200) or "?"


@dataclass(frozen=True)
class _Candidate:
    document: int
    text: str
    score: float


class LocalAnswerGenerator:
    """`roles.AnswerGenerator`: the sentences of the documents nearest to the question, quoted verbatim, white
    space aside.

    Answers only when the best one has a cosine of at least `answer_at`; quotes at most `sentences`.
    """

    def __init__(
        self, embedder: VectorSource, answer_at: float, sentences: int, recorder: CallRecorder
    ) -> None:
        self._embedder = embedder
        self._answer_at = answer_at
        self._sentences = max(sentences, 1)
        self._recorder = recorder

    def answer(
        self, question: str, documents: Sequence[Document], feedback: Sequence[str] = ()
    ) -> GeneratedAnswer:
        """A sentence that stands in a remark was tried already, and is not quoted again."""
        texts = [document["text"] for document in documents]
        asked = [question_of(document["title"]) for document in documents]
        request: dict[str, Any] = {
            "question": question,
            "documents": texts,
            "answer_at": self._answer_at,
            "sentences": self._sentences,
        }
        if any(asked):
            request["asked"] = asked
        if feedback:
            request["feedback"] = list(feedback)
        spec = local_spec("answer_generator", NAME, request)
        response = self._recorder.call(
            spec, lambda: CallResult(self._extract(question, texts, asked, feedback))
        )
        return GeneratedAnswer(response["text"], tuple(response["cited"]), response["why_not"])

    def answer_directly(self, question: str) -> GeneratedAnswer:
        """Never; and nothing is recorded, because nothing was asked."""
        return GeneratedAnswer("", (), FROM_DOCUMENTS_ONLY)

    def _extract(
        self, question: str, texts: Sequence[str], asked: Sequence[str], feedback: Sequence[str]
    ) -> dict[str, Any]:
        found = _quotable(question, texts, [one_line(remark) for remark in feedback])
        candidates = self._candidates(question, found, asked)
        best = max((candidate.score for candidate in candidates), default=0.0)
        if not candidates or best < self._answer_at:
            none = "none shares enough words with the question" if found else "they hold none"
            figures = f"best {best:.3f}, needed {self._answer_at:.3f}" if candidates else none
            why_not = f"no sentence in the documents supports an answer ({figures})"
            return {"text": "", "cited": [], "why_not": why_not}
        near = [candidate for candidate in candidates if candidate.score >= best * _RELATIVE_CUT]
        chosen = sorted(near, key=lambda candidate: -candidate.score)[: self._sentences]
        quoted = [candidate for candidate in candidates if candidate in chosen]  # in document order
        cited = sorted({candidate.document for candidate in quoted})
        text = " ".join(
            f'"{_shown(candidate.text)}" [{cited.index(candidate.document) + 1}]' for candidate in quoted
        )
        return {"text": text, "cited": cited, "why_not": ""}

    def _candidates(
        self, question: str, found: Sequence[tuple[int, str]], asked: Sequence[str]
    ) -> list[_Candidate]:
        """The sentences with their scores. Of a question that MiniLM cannot read, those only that share its
        words."""
        behind = [asked[position] for position, _ in found]
        scores = titled_cosines(self._embedder, question, [sentence for _, sentence in found], behind)
        readable = is_readable(question)
        return [
            _Candidate(position, sentence, score)
            for (position, sentence), title, score in zip(found, behind, scores, strict=True)
            if readable or shared(question, f"{title} {sentence}") >= ENOUGH
        ]


def question_of(title: str) -> str:
    """The question that a title ends with, as those of frequently asked questions do; else ""."""
    last = title.rsplit(" > ", 1)[-1].strip()
    return last if last.endswith(_QUESTION_MARKS) else ""


def titled_cosines(
    embedder: VectorSource, question: str, found: Sequence[str], asked: Sequence[str]
) -> list[float]:
    """As `cosines`: the better one of each sentence alone and behind the question it belongs to, "" for none."""
    alone = cosines(embedder, question, found)
    behind = cosines(
        embedder, question, [f"{title} {text}".strip() for title, text in zip(asked, found, strict=True)]
    )
    return [max(pair) for pair in zip(alone, behind, strict=True)]


def _shown(sentence: str) -> str:
    """A sentence as an answer quotes it."""
    return one_line(_BULLET.sub("", sentence))


def _quotable(question: str, texts: Sequence[str], tried: Sequence[str]) -> list[tuple[int, str]]:
    """Every sentence that could be an answer, with the place of its text, once each: no headings, no
    questions, nothing that only repeats words of the question, none of `tried`."""
    found: list[tuple[int, str]] = []
    seen: set[str] = set()
    asked = content_set(question)
    for position, text in enumerate(texts):
        for sentence in sentences(text):
            key = one_line(sentence).casefold()
            if any(f'"{_shown(sentence)}"' in remark for remark in tried):
                continue
            if len(words(sentence)) <= _SAYS_LITTLE and content_set(sentence) <= asked:
                continue
            if key not in seen and _can_answer(sentence):
                seen.add(key)
                found.append((position, sentence))
    return found[:_MAX_SENTENCES]


def _can_answer(sentence: str) -> bool:
    """Not for questions, headings and lines that only announce what follows: they resemble the question
    most of all, and say nothing."""
    if sentence.startswith("#") or "```" in sentence or sentence.endswith((*_QUESTION_MARKS, ":", "：")):
        return False
    if _ENDS.search(sentence) or _LIST_MARK.match(sentence) or ":" in sentence:
        return True
    return (
        len(sentence.split()) >= _HEADING_WORDS or any(map(str.isdigit, sentence)) or not sentence.isascii()
    )
