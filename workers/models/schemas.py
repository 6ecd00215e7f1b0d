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
