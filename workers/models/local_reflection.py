"""Routing, extracting, feedback and apology without a key: word lists, cosines and fixed phrases."""

from collections.abc import Sequence

from shared.clean import one_line
from workers.models.languages import apology, asks_for_fresh, language_of
from workers.models.local import KEYWORDS, local_spec, question_of, quoted, titled_cosines
from workers.models.minilm import NAME, VectorSource
from workers.models.roles import CallRecorder, CallResult, Document
from workers.models.sentences import sentences
from workers.models.words import content_words

TEMPLATES = "local/templates"
_MAX_SENTENCES = 200  # of one document
_MAX_TRIED_CHARS = 600
_SHOWN_CHARS = 1_500  # of an answer inside a remark: three of the longest sentences


class LocalRouter:
    """`roles.Router`: the store, or the web when the question plainly asks for what is new. Never "direct":
    without a model there is nobody to answer."""

    def __init__(self, recorder: CallRecorder) -> None:
        self._recorder = recorder

    def route(self, question: str, description: str, web: bool) -> str:
        spec = local_spec("router", KEYWORDS, {"question": question, "web": web})
        route = "websearch" if web and asks_for_fresh(question) else "vectorstore"
        return str(self._recorder.call(spec, lambda: CallResult(route)))


class LocalKnowledgeExtractor:
    """`roles.KnowledgeExtractor`: the sentences with a cosine of at least `strip_at`, verbatim, in order."""

    def __init__(self, embedder: VectorSource, strip_at: float, recorder: CallRecorder) -> None:
        self._embedder = embedder
        self._strip_at = strip_at
        self._recorder = recorder

    def extract(self, question: str, document: Document) -> list[str]:
        request = {"question": question, "document": document["text"], "strip_at": self._strip_at}
        if asked := question_of(document["title"]):
            request["asked"] = asked
        spec = local_spec("knowledge_extractor", NAME, request)

        def perform() -> CallResult:
            found = list(dict.fromkeys(sentences(document["text"])))[:_MAX_SENTENCES]
            scores = titled_cosines(self._embedder, question, found, [asked] * len(found))
            near = [text for text, score in zip(found, scores, strict=True) if score >= self._strip_at]
            return CallResult(near)

        return [str(text) for text in self._recorder.call(spec, perform)]


class LocalFeedbackWriter:
    """`roles.FeedbackWriter`. It quotes what failed, which is how the local rewriter and generator know not
    to do the same again."""

    def __init__(self, recorder: CallRecorder) -> None:
        self._recorder = recorder

    def on_query(self, question: str, query: str, target: str) -> str:
        place = "on the web" if target == "websearch" else "in the store"
        used = {word.lower() for word in content_words(query)}
        unused = [word for word in dict.fromkeys(content_words(question)) if word.lower() not in used]
        advice = f"try the words {' '.join(unused)}" if unused else "try fewer or other words"
        remark = f"nothing relevant was found {place} with {quoted(query)}; {one_line(advice, 200)}"
        return self._write({"question": question, "query": query, "target": target}, remark)

    def on_answer(self, question: str, answer: str, problem: str) -> str:
        wrong, advice = {
            "not_grounded": ("is not supported by the documents", "keep to what they say"),
            "does_not_answer": ("does not answer the question", "use other sentences"),
        }.get(problem, (one_line(problem, 100), "try again"))
        remark = f"this answer {wrong}, {advice}: {one_line(answer, _SHOWN_CHARS)}"
        return self._write({"question": question, "answer": answer, "problem": problem}, remark)

    def _write(self, request: dict[str, str], remark: str) -> str:
        spec = local_spec("feedback_writer", TEMPLATES, dict(request))
        return str(self._recorder.call(spec, lambda: CallResult(remark)))


class LocalApologyWriter:
    """`roles.ApologyWriter`: a fixed sentence in the language that the question seems to be in, else English.
    The phrases of what was tried stay as they are."""

    def __init__(self, recorder: CallRecorder) -> None:
        self._recorder = recorder

    def apologise(self, question: str, tried: Sequence[str]) -> str:
        spec = local_spec("apology_writer", TEMPLATES, {"question": question, "tried": list(tried)})
        phrases = [one_line(phrase).rstrip(".") for phrase in tried if phrase.strip()]
        listed = one_line("; ".join(phrases), _MAX_TRIED_CHARS)
        return str(self._recorder.call(spec, lambda: CallResult(apology(language_of(question), listed))))
