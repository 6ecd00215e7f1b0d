"""What is embedded, and how documents are grouped. The rest is tested against a real Postgres."""

from workers.stores.chunks import Chunk
from workers.stores.loaders import LoadedDocument
from workers.stores.sync import _batches, _texts, _Wanted


def wanted(number: int, size: int = 1) -> _Wanted:
    document = LoadedDocument(str(number), "t", "x" * size, None, "/d/a.jsonl")
    return _Wanted(document.source, [document], "hash")


def test_batches_are_bounded_and_keep_the_order() -> None:
    batches = list(_batches(wanted(number) for number in range(150)))
    assert [len(one) for one in batches] == [128, 22]
    assert [int(one.source) for batch in batches for one in batch] == list(range(150))
    assert [len(one) for one in _batches(wanted(number, 90_000) for number in range(4))] == [3, 1]
    assert list(_batches([])) == []


def test_only_markdown_is_embedded_with_its_headings() -> None:
    def chunk(path: str) -> Chunk:
        return Chunk("id", "text", "Manual > Pumps", path, None, 0, "hash", path)

    assert _texts([chunk("/d/a.md"), chunk("/d/a.txt")]) == ["Manual > Pumps\ntext", "text"]
