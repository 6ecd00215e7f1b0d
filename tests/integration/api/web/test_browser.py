"""The page in a real browser: it moves, the keyboard suffices, nothing runs that should not, nothing leaves
this machine. On a machine without Chromium these are skipped, and say so."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from shared.settings import Settings
from tests.integration.api.conftest import Api
from tests.integration.api.web import data
from tests.integration.api.web.data import ALL_HOSTILE, BAD_LINKS, add_batch
from tests.integration.api.web.serving import WHY_NOT, browser, console, requested, serving
from tests.integration.cluster import read_rows

pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))


class Page:
    """One browser at one server."""

    def __init__(self, driver: Any, url: str, api: Api) -> None:
        self.driver, self.url, self.api = driver, url, api

    def go(self, path: str) -> None:
        self.driver.get(self.url + path)

    def one(self, selector: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def ask(self, script: str) -> Any:
        return self.driver.execute_script(f"return {script}")

    def until(self, script: str) -> None:
        """Waits until the script's value is true."""
        WebDriverWait(self.driver, 20, 0.1).until(lambda _: self.ask(script), f"never true: {script}")

    def press(self, *keys: str) -> None:
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def tab_to(self, kind: str, text: str) -> None:
        """Goes on with the tabulator until an element of that kind has the focus that says `text`."""
        for _ in range(60):
            self.press(Keys.TAB)
            found, said = self.ask("[document.activeElement.tagName, document.activeElement.innerText]")
            if found == kind and text in said:
                return
        raise AssertionError(f"no tabulator leads to {text!r}")


@pytest.fixture(scope="module")
def shared(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with serving(api.app) as url, browser(tmp_path_factory.mktemp("chromium")) as driver:
        yield Page(driver, url, api)


@pytest.fixture
def page(shared: Page) -> Iterator[Page]:
    """The browser; after the test its console must be empty and every request have been to our server."""
    yield shared
    said = console(shared.driver)
    assert said == []
    outside = [
        address
        for address in requested(shared.driver)
        if not address.startswith(("http://127.0.0.1:", "data:", "chrome://"))
    ]
    assert outside == []


def test_progress_moves_by_itself_and_keeps_the_focus(page: Page) -> None:
    batch, runs = add_batch(page.api.engine, [f"q{n}?" for n in range(4)], ["answered"])
    page.go(f"/batches/{batch}")
    assert page.ask("document.querySelector('progress').value") == 1
    page.ask(f"document.querySelector('#pause-{batch}').focus()")
    page.ask("window.bar = document.querySelector('progress')")
    data.set_status(page.api.engine, runs[1], "failed")
    data.set_status(page.api.engine, runs[2], "answered")
    page.until("document.querySelector('progress').value === 3")
    assert page.ask("window.bar.isConnected")  # changed in place: a reader's place is not lost
    assert page.ask("document.activeElement.id") == f"pause-{batch}"
    page.until("document.querySelector('[role=status]').textContent === 'open, 70% of the questions done'")
    assert page.ask("document.querySelector('.bar rect.failed').getAttribute('width')") == "25.000"
    data.set_status(page.api.engine, runs[3], "answered")
    data.end(page.api.engine, batch)
    page.until("document.querySelector('.tag').textContent === 'ended'")
    assert page.ask("document.querySelectorAll('#questions .tag').length") == 4


def test_the_list_renews_itself(page: Page) -> None:
    page.go("/")
    add_batch(page.api.engine, ["q?"], name="Came while you looked")
    page.until("document.body.innerText.includes('Came while you looked')")


def test_the_keyboard_leads_from_the_list_to_a_run_and_its_documents(page: Page) -> None:
    batch, runs = add_batch(page.api.engine, ["Which way?"], ["answered"], name="By keyboard")
    data.add_crag_story(page.api.engine, runs[0], "A passage", ["https://example.org/"])
    page.go("/")
    page.press(Keys.TAB)
    assert "Skip" in page.ask("document.activeElement.innerText")
    page.press(Keys.ENTER)
    assert page.ask("document.activeElement.id") == "main"
    page.tab_to("A", "By keyboard")
    assert page.ask("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.press(Keys.ENTER)
    page.until(f"location.pathname === '/batches/{batch}'")
    page.tab_to("A", "Which way?")
    page.press(Keys.ENTER)
    page.until(f"location.pathname === '/runs/{runs[0]}'")
    page.tab_to("SUMMARY", "A passage")
    page.press(Keys.ENTER)
    page.until("document.querySelector('details[open] .text').innerText.startsWith('Passage 0.')")


def test_pause_and_cancel_by_the_buttons(page: Page) -> None:
    batch, _ = add_batch(page.api.engine, ["q?"], name="To be stopped")
    page.go(f"/batches/{batch}")
    page.one(f"#pause-{batch}").send_keys(Keys.ENTER)
    page.until("document.querySelector('.tag').textContent === 'paused'")
    page.one(f"#cancel-{batch}").click()
    page.driver.switch_to.alert.dismiss()  # asked first
    page.one(f"#resume-{batch}").click()
    page.until("document.querySelector('.tag').textContent === 'open'")
    page.one(f"#cancel-{batch}").click()
    page.driver.switch_to.alert.accept()
    page.until("document.querySelector('.tag').textContent === 'cancelled'")
    page.one("#events").find_element(By.XPATH, "..").click()  # opened, it tells what was done meanwhile
    page.until("/cancelled.*resumed.*paused/s.test(document.querySelector('#events').textContent)")
    (row,) = read_rows(page.api.engine, "SELECT status FROM batches WHERE id = :b", b=batch)
    assert row.status == "cancelled"


def test_hostile_text_does_not_run(page: Page) -> None:
    batch, runs = add_batch(
        page.api.engine, data.HOSTILE, ["answered"] * len(data.HOSTILE), name=ALL_HOSTILE, answer=ALL_HOSTILE
    )
    data.add_crag_story(page.api.engine, runs[0], ALL_HOSTILE, BAD_LINKS)
    for path in ("/", f"/batches/{batch}", f"/runs/{runs[0]}", f"/batches/{batch}/nodes"):
        page.go(path)
        if "/runs/" in path:
            page.ask("document.querySelectorAll('details').forEach(one => { one.open = true })")
        assert page.ask("document.body.innerText.includes('window.hacked')")
        assert page.ask("window.hacked") is None
        assert (
            page.ask(
                "document.querySelectorAll('img, iframe, [onload], [onerror], a[href^=\"java\" i]').length"
            )
            == 0
        )
        assert page.ask("document.documentElement.scrollWidth <= innerWidth")  # and breaks no layout


def test_a_file_is_looked_at_and_becomes_a_batch(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "<img src=x onerror=window.hacked=1>.csv"
    file.write_text(f"question,note\nWhy?,a\n{data.HOSTILE[0]},b\nWhy?,c\n", encoding="utf-8")
    page.go("/upload")
    page.one("#file").send_keys(str(file))
    page.until("document.querySelector('#found').innerText.includes('2 questions')")
    assert page.ask("document.querySelector('#found').innerText").count("<script>") == 1
    page.one("#name").send_keys("From the page 契約 🙂")
    page.one("button.main").click()
    page.until("/^.batches.\\d+$/.test(location.pathname)")
    assert page.one("h1").text == "From the page 契約 🙂"
    assert page.ask("window.hacked") is None


def test_a_dropped_file_is_taken_and_what_is_wrong_with_it_is_said(page: Page) -> None:
    page.go("/upload")
    drop = """
    const data = new DataTransfer();
    data.items.add(new File(["a,b\\n1,2\\n"], "no-questions.csv"));
    document.getElementById("drop").dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true}));
    """
    page.driver.execute_script(drop)
    page.until("!document.querySelector('#notice').hidden")
    assert "column" in page.one("#notice").text
    assert page.ask("document.querySelector('#notice').getAttribute('role')") == "alert"
    # the browser itself notes every answer that is an error
    assert all("422" in line for line in console(page.driver))


@pytest.mark.parametrize("width", [360, 768])
def test_small_screens_do_not_scroll_sideways_and_dark_is_dark(page: Page, width: int) -> None:
    batch, runs = add_batch(
        page.api.engine, ["ما هي مدة العقد؟ 契約期間は?"], ["answered"], answer="مدة العقد سنتان"
    )
    data.add_crag_story(page.api.engine, runs[0], "x" * 200, ["https://example.org/" + "y" * 300])
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    try:
        for path in ("/", f"/batches/{batch}", f"/runs/{runs[0]}", "/upload"):
            page.go(path)
            assert page.ask("document.documentElement.scrollWidth") <= width, path
        page.go(f"/batches/{batch}")  # the answer is in the window, however narrow
        answer = "document.querySelector('.questions td:last-child').getBoundingClientRect().right"
        assert page.ask(answer) <= width
        page.go(f"/runs/{runs[0]}")
        assert page.ask("getComputedStyle(document.querySelector('h1')).direction") == "rtl"
        ground = page.ask("getComputedStyle(document.documentElement).backgroundColor")
        assert max(map(int, ground.removeprefix("rgb(").rstrip(")").split(", "))) < 50
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_logging_in_and_out(page: Page, settings: Settings) -> None:
    keyed = Api(settings, page.api.engine)  # as in a container: everybody needs a key
    batch, _ = add_batch(keyed.engine, ["q?"], name="Of the key's owner", owner="browsing")
    token = keyed.key("browsing", "read")
    with serving(keyed.app) as url:
        page.driver.get(f"{url}/batches/{batch}")
        page.until("location.pathname === '/login'")
        page.press(token, Keys.ENTER)  # the field has the focus already
        page.until(f"location.pathname === '/batches/{batch}'")
        assert page.ask("document.cookie") == ""  # closed to scripts
        assert page.ask("document.querySelectorAll('.acts form').length") == 0  # this key may only read
        page.one(".who button").click()
        page.until("location.pathname === '/login'")
        page.driver.get(url)
        page.until("location.pathname === '/login'")
