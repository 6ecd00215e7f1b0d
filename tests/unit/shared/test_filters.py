"""`--filter key=value`: what is understood, and how the rest is named."""

import pytest

from shared.errors import UsageError
from shared.filters import MAX_VALUES, as_text, parse_filters


def test_several_keys_and_several_values_of_one() -> None:
    found = parse_filters(["page=3", " fields.lang = nl ", "page=4", "page=3", "title=a=b"])
    assert found == {"page": ["3", "4"], "fields.lang": ["nl"], "title": ["a=b"]}
    assert as_text(found) == "page=3|4, fields.lang=nl, title=a=b"
    assert parse_filters([]) == {}


@pytest.mark.parametrize(
    ("item", "named"),
    [
        ("page", "key=value"),
        ("=3", "key=value"),
        ("", "key=value"),
        ("pages=3", "fields.NAME"),
        ("text=x", "title, source, path, page, language"),
        ("fields.=x", "fields.NAME"),
        ("fields.a.b=x", "fields.NAME"),
        ("fields.a[]=x", "fields.NAME"),
        ('fields."a"=x', "fields.NAME"),
        ("fields." + "a" * 65 + "=x", "fields.NAME"),
        ("title=", "empty"),
        ("title=  ", "empty"),
        ("page=0", "counted from 1"),
        ("page=three", "counted from 1"),
        ("page=-1", "counted from 1"),
        ("page=٣", "counted from 1"),
        ("title=" + "x" * 1001, "longer than 1000"),
    ],
)
def test_what_is_wrong_is_named(item: str, named: str) -> None:
    with pytest.raises(UsageError, match="--filter") as error:
        parse_filters([item])
    assert named in str(error.value)
    assert len(str(error.value)) < 400


def test_hostile_text_is_cleaned_and_bounded() -> None:
    assert parse_filters(["title=a\x00b\ud800"]) == {"title": ["a\ufffdb\ufffd"]}
    with pytest.raises(UsageError, match="At most 100"):
        parse_filters([f"title={number}" for number in range(MAX_VALUES + 1)])
