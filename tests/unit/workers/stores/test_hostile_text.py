"""Patterns that read text from outside must not try for hours: `re` holds the whole process while it tries."""

import subprocess
import sys

CODE = r"""
from workers.models.openai import _NO_MARKERS
from workers.models.sentences import sentences
from workers.stores.markdown import sections
from workers.stores.web.crawl import _LOC

many = 300_000
assert _LOC.findall("<loc>" + " " * many + "</lo") == []
assert _LOC.findall("<loc>\n <![CDATA[ http://x/ ]]>\n</loc>")[0].strip() == "http://x/"
for line in ("# " + "[" * many, "# " + "[](" * many, "# a" + " " * many + "b", "# a" + " #" * many + "b"):
    [section] = sections(line)
    assert section.text == line and section.headings == ()  # nothing of it is lost
    assert len(list(sections(line + "\n====="))) == 1
assert sentences("." * many + "x, and many letters")[-1].endswith("letters")
assert _NO_MARKERS.sub("", "a [1]" + " " * many + "b  [22].") == "a" + " " * many + "b."
"""


def test_no_pattern_can_be_kept_busy() -> None:
    subprocess.run([sys.executable, "-c", CODE], check=True, timeout=60)
