"""The JSON schemas of the structured answers, in the form that strict mode takes: every field required,
no others allowed, no bounds (strict mode knows none; `lenient` checks them)."""

from typing import Any


def _object(name: str, description: str, fields: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "title": name,
        "description": description,
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


RELEVANCE_GRADE = _object(
    "RelevanceGrade",
    "Whether a document helps to answer a question.",
    {
        "binary_score": {
            "type": "string",
            "enum": ["yes", "no"],
            "description": '"yes" or "no"',
        },
        "score": {
            "type": ["number", "null"],
            "description": "a number from 0 to 1, or null",
        },
    },
)

CANARY = _object(
    "Canary",
    "Whether a model answers at all.",
    {"word": {"type": "string", "description": 'the word "yes"'}},
)

SEARCH_QUERY = _object(
    "SearchQuery",
    "A query for a web search engine.",
    {"query": {"type": "string", "description": "the query, one line"}},
)

CITED_ANSWER = _object(
    "CitedAnswer",
    "An answer that rests on the numbered documents, or the statement that they hold none.",
    {
        "answerable": {"type": "boolean", "description": "true or false"},
        "answer": {"type": "string", "description": 'the answer with its [n] marks, "" if not answerable'},
        "cited": {
            "type": "array",
            "items": {"type": "integer"},
            "description": "list of the numbers of the documents used, such as [1, 3]",
        },
    },
)

_BINARY = {"type": "string", "enum": ["yes", "no"], "description": '"yes" or "no"'}
_SCORE = {"type": ["number", "null"], "description": "a number from 0 to 1, or null"}

GROUNDEDNESS_GRADE = _object(
    "GroundednessGrade",
    "Whether documents support every statement of an answer.",
    {
        "unsupported": {
            "type": "string",
            "description": 'the first statement that they do not support, "" if there is none',
        },
        "binary_score": _BINARY,
        "score": _SCORE,
    },
)

ANSWER_GRADE = _object(
    "AnswerGrade",
    "Whether an answer answers its question.",
    {
        "missing": {
            "type": "string",
            "description": 'what the question asks and the answer does not say, "" if nothing',
        },
        "binary_score": _BINARY,
        "score": _SCORE,
    },
)

ROUTE_CHOICE = _object(
    "RouteChoice",
    "Where the answer to a question is to be looked for.",
    {
        "route": {
            "type": "string",
            "enum": ["vectorstore", "websearch", "direct"],
            "description": '"vectorstore", "websearch" or "direct"',
        }
    },
)

EXTRACTED_PASSAGES = _object(
    "ExtractedPassages",
    "Passages copied from a document, word for word.",
    {
        "passages": {
            "type": "array",
            "items": {"type": "string"},
            "description": "list of passages, each copied word for word; [] if none helps",
        }
    },
)

FEEDBACK_REMARK = _object(
    "FeedbackRemark",
    "What to do better in the next try.",
    {"feedback": {"type": "string", "description": "the advice, at most two sentences"}},
)

APOLOGY_TEXT = _object(
    "ApologyText",
    "A short message that no answer was found.",
    {"apology": {"type": "string", "description": "the message, one or two sentences"}},
)

DIRECT_ANSWER = _object(
    "DirectAnswer",
    "An answer without documents, or the statement that there is none.",
    {
        "answerable": {"type": "boolean", "description": "true or false"},
        "answer": {"type": "string", "description": 'the answer, "" if not answerable'},
    },
)
