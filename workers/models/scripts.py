"""Questions in scripts that MiniLM cannot read: it knows their letters, and hardly any of their words.

Its cosine of a Korean, Chinese or Russian question with any sentence of that script is about 0.5, whatever
the two say. So a sentence must share words with such a question before its cosine counts.
"""

from workers.stores.bm25 import tokens

ENOUGH = 0.25  # share of the question's words
_STEM = 5  # letters; endings are inflected in most of these languages
_LATIN_ENDS = 0x0250  # Latin, its supplements and extensions A and B
_LATIN_MORE = range(0x1E00, 0x1F00)  # Vietnamese among others


def is_readable(question: str) -> bool:
    """Whether at least half of the letters are Latin; a question without letters is."""
    letters = [ord(character) for character in question if character.isalpha()]
    latin = sum(letter < _LATIN_ENDS or letter in _LATIN_MORE for letter in letters)
    return latin * 2 >= len(letters)


def shared(question: str, text: str) -> float:
    """The share of the question's words that `text` has, in 0..1; 0 for a question without words.

    Scripts without blanks are compared by pairs of characters.
    """
    wanted = _stems(question)
    return len(wanted & _stems(text)) / len(wanted) if wanted else 0.0


def _stems(text: str) -> frozenset[str]:
    return frozenset(word if any(map(str.isdigit, word)) else word[:_STEM] for word in tokens(text))
