"""Which language a question is in, and the phrases kept for it. A guess by stop words and by script."""

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from workers.models.words import languages, words

DEFAULT = "en"
_PHRASES_FILE = Path(__file__).parent / "phrases.json"
_SCRIPTS = (  # the first that occurs decides: Japanese is written with Chinese signs too
    ("ko", re.compile("[\uac00-\ud7af\u1100-\u11ff]")),
    ("ja", re.compile("[\u3040-\u30ff]")),
    ("zh", re.compile("[\u3400-\u9fff]")),
    ("es", re.compile("[¿¡]")),
)
_OTHER_LETTERS = re.compile("[ășțşţğıđơưąęłńśźżčěřůőű]")  # Romanian, Turkish, Polish ...
_FEWEST_HITS = 2  # one short word proves nothing


@lru_cache(maxsize=1)
def _phrases() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(_PHRASES_FILE.read_text(encoding="utf-8"))
    return content


@lru_cache(maxsize=1)
def _stop_words() -> dict[str, frozenset[str]]:
    return {language: frozenset(text.split()) for language, text in languages()["stop_words"].items()}


@lru_cache(maxsize=1)
def _fresh() -> tuple[re.Pattern[str], tuple[str, ...]]:
    """A pattern for languages with blanks, and the words of those without."""
    unspaced = {"ko", "ja", "zh"}
    groups = _phrases()["fresh"]
    spaced = [phrase for language in groups if language not in unspaced for phrase in groups[language]]
    longest_first = sorted(spaced, key=len, reverse=True)
    pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)")
    return pattern, tuple(phrase for language in unspaced for phrase in groups[language])


def language_of(text: str) -> str:
    """The language whose stop words occur most in `text`; English when in doubt."""
    for language, script in _SCRIPTS:
        if script.search(text):
            return language
    if len(_OTHER_LETTERS.findall(text.lower())) > 1:
        return DEFAULT
    spoken = [word.lower().replace("’", "'") for word in words(text)]
    hits = {language: sum(word in known for word in spoken) for language, known in _stop_words().items()}
    most = max(hits.values())
    leaders = [language for language, count in hits.items() if count == most]
    return leaders[0] if most >= _FEWEST_HITS and len(leaders) == 1 else DEFAULT


def asks_for_fresh(question: str) -> bool:
    """Whether the question holds a word that plainly asks for what is new."""
    pattern, unspaced = _fresh()
    text = question.casefold().replace("’", "'")
    return bool(pattern.search(text)) or any(phrase in text for phrase in unspaced)


def apology(language: str, tried: str) -> str:
    """One sentence that no answer was found, and one of what was tried unless `tried` is empty."""
    forms = _phrases()["apology"]
    form = forms.get(language, forms[DEFAULT])
    return f"{form['sorry']} {form['tried'].replace('{tried}', tried)}" if tried else str(form["sorry"])
